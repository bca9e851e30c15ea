// Every reduction kernel on every instruction set, bit for bit against a scalar reference.
#include "collectives/kernels/reduce.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/collectives/kernels/reduce_reference.hpp"

namespace sprat::collectives {
namespace {

using Random = std::mt19937_64;
using reduce_reference::Bytes;
using reduce_reference::reference;
using reduce_reference::result_type;

// Values: numbers of one magnitude, so that sums round; zeros, denormals, extremes, a few NaNs.

template <class Word>
void fill_floats(std::span<Word> words, int fraction_bits, Random& random) {
  const int exponent_bits = static_cast<int>(8 * sizeof(Word)) - 1 - fraction_bits;
  const Word sign = Word{1} << (8 * sizeof(Word) - 1);
  const Word one = static_cast<Word>(((Word{1} << (exponent_bits - 1)) - 1) << fraction_bits);
  const Word infinity = static_cast<Word>(((Word{1} << exponent_bits) - 1) << fraction_bits);
  const Word fraction = static_cast<Word>((Word{1} << fraction_bits) - 1);
  for (Word& word : words) {
    const Word bits = static_cast<Word>(random());
    const Word some = static_cast<Word>(bits & (sign | fraction));
    switch (random() % 32) {
      case 0:
        word = static_cast<Word>(bits & sign);
        break;  // a zero
      case 1:
        word = some;
        break;  // a denormal
      case 2:
        word = static_cast<Word>(bits & ~(Word{1} << fraction_bits));
        break;  // any size
      case 3:
        word = random() % 8 == 0 ? static_cast<Word>(some | infinity) : one;
        break;
      case 4:
        word = random() % 8 == 0 ? static_cast<Word>((bits & sign) | infinity) : one;
        break;
      default:
        word = static_cast<Word>(some | (one + (random() % 3 << fraction_bits)));
        break;
    }
  }
}

template <class Word>
std::span<Word> words_of(Bytes& bytes) {
  return {reinterpret_cast<Word*>(bytes.data()), bytes.size() / sizeof(Word)};
}

void fill(Bytes& bytes, DType dtype, Random& random) {
  if (dtype == DType::f16) {
    return fill_floats(words_of<std::uint16_t>(bytes), 10, random);
  }
  if (dtype == DType::bf16) {
    return fill_floats(words_of<std::uint16_t>(bytes), 7, random);
  }
  if (dtype == DType::f32) {
    return fill_floats(words_of<std::uint32_t>(bytes), 23, random);
  }
  if (dtype == DType::f64) {
    return fill_floats(words_of<std::uint64_t>(bytes), 52, random);
  }
  if (dtype == DType::f8e4m3) {
    return fill_floats(words_of<std::uint8_t>(bytes), 3, random);
  }
  if (dtype == DType::f8e5m2) {
    return fill_floats(words_of<std::uint8_t>(bytes), 2, random);
  }
  const bool is_truth = dtype == DType::boolean;
  for (std::byte& byte : bytes) {
    byte = is_truth && random() % 3 == 0 ? std::byte{0} : static_cast<std::byte>(random());
  }
  if (is_truth) {
    return;
  }
  // Some zeros, for land.
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    if (random() % 5 == 0) {
      std::memset(&bytes[at], 0, size);
    }
  }
}

/// Terms over [0, ranks) and the memory they point to, `skew` elements past a vector's alignment.
struct Operands {
  std::vector<Bytes> memory;
  std::vector<Term> terms;

  void add(RankRange covers, bool partial, DType input, std::size_t count, Random& random) {
    const DType dtype = partial ? accumulator_of(input) : input;
    const std::size_t skew = random() % 5;
    Bytes& bytes = memory.emplace_back((skew + count + 1) * size_of(dtype));
    fill(bytes, dtype, random);
    terms.push_back({bytes.data() + skew * size_of(dtype), covers, partial});
  }
  /// A random set of subtrees that makes up `node`.
  void split(RankRange node, DType input, std::size_t count, Random& random) {
    if (node.size() == 1 || random() % 4 == 0) {
      return add(node, node.size() > 1 || random() % 2 == 0, input, count, random);
    }
    const int middle = split_point(node);
    split({node.first, middle}, input, count, random);
    split({middle, node.last}, input, count, random);
  }
};

Operands contributions(int ranks, DType input, std::size_t count, Random& random) {
  Operands operands;
  for (int rank = 0; rank < ranks; ++rank) {
    operands.add({rank, rank + 1}, false, input, count, random);
  }
  return operands;
}

std::string describe(const Arithmetic& arithmetic, std::span<const Term> terms, std::size_t count) {
  std::string text = std::string(name(arithmetic.op)) + " " + name(arithmetic.input) + " -> " +
                     name(result_type(arithmetic)) + (arithmetic.complete ? "" : " partial") +
                     ", " + std::to_string(count) + " elements of";
  for (const Term& term : terms) {
    text += " [" + std::to_string(term.covers.first) + "," + std::to_string(term.covers.last) +
            (term.partial ? ")p" : ")");
  }
  return text;
}

bool is_nan(DType dtype, const std::byte* at) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value);
  }
  if (dtype == DType::f64) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value);
  }
  return false;
}

/// Byte for byte; of a partial, one NaN is as good as another.
void expect_same(const Arithmetic& arithmetic, const std::byte* actual, const Bytes& expected,
                 const std::string& what) {
  if (expected.empty() || std::memcmp(actual, expected.data(), expected.size()) == 0) {
    return;
  }
  const DType dtype = result_type(arithmetic);
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at < expected.size(); at += size) {
    if (std::memcmp(actual + at, &expected[at], size) == 0) {
      continue;
    }
    if (!arithmetic.complete && is_nan(dtype, actual + at) && is_nan(dtype, &expected[at])) {
      continue;
    }
    std::uint64_t got = 0, wanted = 0;
    std::memcpy(&got, actual + at, size);
    std::memcpy(&wanted, &expected[at], size);
    ADD_FAILURE() << what << ": element " << at / size << std::hex << " is 0x" << got
                  << " instead of 0x" << wanted;
    return;
  }
}

/// Holds the kernels of every target against the reference, and that they write `to` alone.
void check(const Arithmetic& arithmetic, const Operands& operands, std::size_t count) {
  constexpr std::byte untouched{0xa5};
  const Bytes expected = reference(arithmetic, operands.terms, count);
  const std::size_t margin = 3 * size_of(result_type(arithmetic));
  for (const std::string& target : reduce_targets()) {
    ASSERT_TRUE(use_reduce_target(target));
    Bytes result(margin + expected.size() + margin, untouched);
    reduce(arithmetic, operands.terms, result.data() + margin, count);
    const std::string what = target + ": " + describe(arithmetic, operands.terms, count);
    expect_same(arithmetic, result.data() + margin, expected, what);
    for (std::size_t i = 0; i < margin; ++i) {
      ASSERT_EQ(result[i], untouched) << what << ": wrote before the result";
      ASSERT_EQ(result[margin + expected.size() + i], untouched) << what << ": wrote past it";
    }
  }
  use_reduce_target("");
}

/// Calls with every reduction of this many ranks that the interface allows.
void for_each_reduction(int ranks, const std::function<void(const Arithmetic&)>& call) {
  std::vector<ReduceOp> ops(all_reduce_ops().begin(), all_reduce_ops().end());
  ops.push_back(ReduceOp::premultiplied_sum);
  for (const DType input : all_dtypes()) {
    for (const ReduceOp op : ops) {
      if (!takes(op, input)) {
        continue;
      }
      const double factor = op == ReduceOp::premultiplied_sum ? -1.0 / 3 : 1;
      Arithmetic arithmetic = {
          .input = input, .output = input, .op = op, .factor = factor, .ranks = ranks};
      call(arithmetic);
      arithmetic.complete = false;
      call(arithmetic);
      if (accumulator_of(input) == input) {
        continue;
      }
      arithmetic.complete = true;
      arithmetic.output = accumulator_of(input);
      call(arithmetic);
    }
  }
}

class ReduceOf : public testing::TestWithParam<int> {};

TEST_P(ReduceOf, gives_the_canonical_tree_of_contributions) {
  Random random(1);
  for_each_reduction(GetParam(), [&](const Arithmetic& arithmetic) {
    for (const std::size_t count : {1, 2, 15, 33, 127, 200}) {
      check(arithmetic, contributions(GetParam(), arithmetic.input, count, random), count);
    }
  });
}

TEST_P(ReduceOf, gives_the_canonical_tree_of_partials_and_contributions) {
  Random random(2);
  for_each_reduction(GetParam(), [&](const Arithmetic& arithmetic) {
    for (const std::size_t count : {1, 31, 150}) {
      Operands operands;
      operands.split({0, GetParam()}, arithmetic.input, count, random);
      check(arithmetic, operands, count);
    }
  });
}

TEST_P(ReduceOf, continues_past_a_block) {
  Random random(3);
  for_each_reduction(GetParam(), [&](const Arithmetic& arithmetic) {
    const std::size_t count = 2 * 4096 / size_of(accumulator_of(arithmetic.input)) + 37;
    Operands operands;
    operands.split({0, GetParam()}, arithmetic.input, count, random);
    check(arithmetic, operands, count);
  });
}

INSTANTIATE_TEST_SUITE_P(Terms, ReduceOf, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 100),
                         [](const auto& terms) { return std::to_string(terms.param); });

TEST(Reduce, of_a_subtree_gives_its_partial) {
  Random random(4);
  for (const RankRange subtree : {RankRange{4, 6}, RankRange{8, 11}, RankRange{10, 11}}) {
    for_each_reduction(11, [&](const Arithmetic& arithmetic) {
      if (arithmetic.complete) {
        return;
      }
      Operands operands;
      operands.split(subtree, arithmetic.input, 70, random);
      check(arithmetic, operands, 70);
    });
  }
}

TEST(Reduce, adds_contributions_to_a_partial_of_any_length) {
  Random random(7);
  for (const auto& [before, added] : {std::pair{3, 1}, {5, 3}, {6, 8}, {1, 4}, {2, 9}}) {
    for_each_reduction(before + added, [&](const Arithmetic& arithmetic) {
      Operands operands;
      operands.add({0, before}, true, arithmetic.input, 150, random);
      for (int place = before; place < before + added; ++place) {
        operands.add({place, place + 1}, false, arithmetic.input, 150, random);
      }
      check(arithmetic, operands, 150);
    });
  }
}

TEST(Reduce, may_write_over_any_one_term) {
  Random random(5);
  for (const int ranks : {1, 2, 3, 5, 8, 16, 17}) {
    for_each_reduction(ranks, [&](const Arithmetic& arithmetic) {
      if (result_type(arithmetic) != arithmetic.input) {
        return;
      }
      const std::size_t count = 4096 / size_of(arithmetic.input) + 29;
      const Operands original = contributions(ranks, arithmetic.input, count, random);
      const Bytes expected = reference(arithmetic, original.terms, count);
      const int over = static_cast<int>(random() % static_cast<unsigned>(ranks));
      for (const std::string& target : reduce_targets()) {
        ASSERT_TRUE(use_reduce_target(target));
        std::vector<Term> terms = original.terms;
        Bytes memory(expected.size());
        std::memcpy(memory.data(), terms[over].data, memory.size());
        terms[over].data = memory.data();
        reduce(arithmetic, terms, memory.data(), count);
        expect_same(arithmetic, memory.data(), expected,
                    target + ": over term " + std::to_string(over) + ", " +
                        describe(arithmetic, terms, count));
      }
      use_reduce_target("");
    });
  }
}

TEST(Reduce, widens_and_returns_every_pattern_of_narrow_floats) {
  for (const DType input : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    const std::size_t size = size_of(input), patterns = std::size_t{1} << 8 * size;
    Operands operands;
    Bytes& bytes = operands.memory.emplace_back(patterns * size);
    for (std::size_t pattern = 0; pattern < patterns; ++pattern) {
      std::memcpy(&bytes[pattern * size], &pattern, size);
    }
    operands.terms.push_back({bytes.data(), {0, 1}, false});
    for (const DType output : {input, DType::f32}) {
      check({.input = input, .output = output, .op = ReduceOp::sum}, operands, patterns);
    }
  }
}

TEST(Reduce, of_every_pattern_is_the_same_at_every_offset_and_tail) {
  constexpr std::size_t lanes = 32;  // of the widest vector of 16-bit floats
  for (const DType input : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    const std::size_t size = size_of(input), patterns = std::size_t{1} << 8 * size;
    Bytes up(patterns * size), down(patterns * size), to(patterns * size);
    for (std::size_t pattern = 0; pattern < patterns; ++pattern) {
      const std::size_t other = patterns - 1 - pattern / 3;
      std::memcpy(&up[pattern * size], &pattern, size);
      std::memcpy(&down[pattern * size], &other, size);
    }
    const auto terms = [&](std::size_t first) {
      return std::vector<Term>{{&up[first * size], {0, 1}, false},
                               {&down[first * size], {1, 2}, false}};
    };
    const Arithmetic sum = {.input = input, .output = input, .ranks = 2};
    const Bytes expected = reference(sum, terms(0), patterns);
    const auto expect_right = [&](std::size_t first, std::size_t count, const std::string& what) {
      reduce(sum, terms(first), to.data(), count);
      ASSERT_EQ(std::memcmp(to.data(), &expected[first * size], count * size), 0)
          << what << ": " << name(input) << ", " << count << " patterns from " << first;
    };
    for (const std::string& target : reduce_targets()) {
      ASSERT_TRUE(use_reduce_target(target));
      for (std::size_t offset = 0; offset <= lanes; ++offset) {
        expect_right(offset, patterns - 2 * offset, target);
        for (std::size_t count = 1; count <= 2 * lanes; ++count) {
          expect_right(patterns / 2 + offset, count, target);
        }
      }
    }
    use_reduce_target("");
  }
}

/// Every f32 that lies on, just below or just above a bound between two results of rounding.
template <class T>
std::vector<float> rounding_bounds() {
  std::vector<float> values;
  for (std::uint32_t pattern = 0; pattern < 1u << (8 * sizeof(T) - 1); ++pattern) {
    const float value = to_float(T{static_cast<decltype(T::bits)>(pattern)});
    if (std::isfinite(value)) {
      values.push_back(value);
    }
  }
  const std::size_t last = values.size() - 1;  // Patterns ascend, so values do.
  values.push_back(values[last] + (values[last] - values[last - 1]));
  std::vector<float> bounds = {std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    // Halved first: the sum of the largest two is past f32's numbers.
    const float middle = values[i] / 2 + values[i + 1] / 2;
    for (const float bound : {values[i], middle, values[i + 1]}) {
      bounds.insert(bounds.end(), {std::nextafter(bound, 0.0f), bound,
                                   std::nextafter(bound, std::numeric_limits<float>::infinity())});
    }
  }
  const std::size_t positive = bounds.size();
  for (std::size_t i = 0; i < positive; ++i) {
    bounds.push_back(-bounds[i]);
  }
  return bounds;
}

TEST(Reduce, rounds_partials_to_nearest_even_at_every_bound) {
  const std::pair<DType, std::vector<float>> cases[] = {
      {DType::f16, rounding_bounds<float16>()},
      {DType::bf16, rounding_bounds<bfloat16>()},
      {DType::f8e4m3, rounding_bounds<float8_e4m3>()},
      {DType::f8e5m2, rounding_bounds<float8_e5m2>()}};
  for (const auto& [format, bounds] : cases) {
    Operands operands;
    operands.terms.push_back({bounds.data(), {0, 3}, true});
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      check({.input = format, .output = format, .op = op, .ranks = 3}, operands, bounds.size());
    }
  }
}

TEST(Reduce, orders_zeros_and_keeps_nan_in_min_and_max) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {
      0.0f,      -0.0f,     1.0f, -1.0f, inf, -inf, nan, -nan, std::bit_cast<float>(0x7f800001u),
      0x1p-149f, -0x1p-149f};
  std::vector<float> left, right;
  for (const float a : values) {
    for (const float b : values) {
      left.push_back(a);
      right.push_back(b);
    }
  }
  Operands operands;
  operands.terms = {{left.data(), {0, 1}, false}, {right.data(), {1, 2}, false}};
  for (const ReduceOp op : all_reduce_ops()) {
    if (!takes(op, DType::f32)) {
      continue;
    }
    check({.op = op, .ranks = 2}, operands, left.size());
  }
}

TEST(Reduce, of_nothing_writes_nothing) {
  Random random(6);
  for_each_reduction(3, [&](const Arithmetic& arithmetic) {
    check(arithmetic, contributions(3, arithmetic.input, 0, random), 0);
  });
}

}  // namespace
}  // namespace sprat::collectives
