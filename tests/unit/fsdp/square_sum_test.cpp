// Sums of squares against integers of any length: every digit, whatever the order and the parts.
#include "sprat/square_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "tests/unit/sanitized.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace sprat::square_sum_test {
namespace {

constexpr float largest = std::numeric_limits<float>::max();
constexpr float smallest = std::numeric_limits<float>::denorm_min();

/// A sum of squares in units of 2^-304, added bit field by bit field.
class BigNumber {
 public:
  explicit BigNumber(std::span<const float> values = {}) {
    for (const float value : values) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const std::uint32_t exponent = bits >> 23 & 255, fraction = bits & 0x7fffff;
      const std::uint64_t whole = exponent == 0 ? fraction : fraction | 0x800000;
      // value is whole * 2^(max(exponent, 1) - 150).
      const std::size_t place = 2 * std::max<std::size_t>(exponent, 1) - 300 + 304;
      add(whole * whole & 0xffffffff, place);
      add(whole * whole >> 32, place + 32);
    }
  }
  std::vector<std::int64_t> digits() const {
    std::vector<std::int64_t> digits(words_.begin(), words_.begin() + SquareSum::digits);
    digits.back() |= static_cast<std::int64_t>(words_[SquareSum::digits]) << 32;
    return digits;
  }
  double nearest() const {
    int top = 32 * static_cast<int>(words_.size()) - 1;
    while (top >= 0 && !bit(top)) {
      --top;
    }
    std::uint64_t kept = 0;
    for (int at = top; at > top - 53; --at) {
      kept = 2 * kept + (bit(at) ? 1 : 0);
    }
    bool below = false;
    for (int at = top - 54; at >= 0; --at) {
      below = below || bit(at);
    }
    const bool up = bit(top - 53) && (below || kept % 2 == 1);
    return std::ldexp(static_cast<double>(kept + (up ? 1 : 0)), top - 52 - 304);
  }

 private:
  bool bit(int at) const {
    return at >= 0 && (words_[static_cast<std::size_t>(at / 32)] >> at % 32 & 1) != 0;
  }
  void add(std::uint64_t part, std::size_t place) {
    std::uint64_t carried = part << place % 32;  // part has 32 bits at most
    for (std::size_t at = place / 32; carried != 0; ++at) {
      carried += words_[at];
      words_[at] = static_cast<std::uint32_t>(carried);
      carried >>= 32;
    }
  }
  std::array<std::uint32_t, 22> words_{};
};

struct Numbers {
  std::string name;
  std::vector<float> values;
};

template <class Draw>
std::vector<float> drawn(std::size_t count, const Draw& draw) {
  std::mt19937 random(static_cast<std::uint32_t>(count));
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return draw(random); });
  return values;
}

float any_finite(std::mt19937& random) {
  float value = 0;
  do {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  } while (!std::isfinite(value));
  return value;
}

std::vector<Numbers> kinds_of_numbers() {
  std::vector<Numbers> kinds = {{"none", {}},
                                {"zeros", {0.0f, -0.0f, 0.0f}},
                                {"the smallest", {smallest}},
                                {"the largest", std::vector<float>(3000, largest)},
                                {"both ends", {largest, smallest, -largest, -smallest}},
                                {"one magnitude", std::vector<float>(100, -1.7f)}};
  for (const std::size_t count : {1, 15, 16, 17, 2047, 2048, 2049, 5000}) {
    const std::string text = std::to_string(count);
    kinds.push_back({text + " of any bits", drawn(count, any_finite)});
    kinds.push_back({text + " normally distributed", drawn(count, [](std::mt19937& random) {
                       return std::normal_distribution<float>(0, 1e-3f)(random);
                     })});
    kinds.push_back({text + " denormals", drawn(count, [](std::mt19937& random) {
                       return std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x7fffff));
                     })});
  }
  // As far apart as two levels reach, and one step farther.
  for (const int apart : {26, 27, 28, 52, 53}) {
    kinds.push_back(
        {"2^" + std::to_string(apart) + " apart", drawn(40, [apart](std::mt19937& random) {
           const float value = 1 + static_cast<float>(random() % 8388608) * 0x1p-23f;
           return std::ldexp(value, random() % 2 == 0 ? 0 : -apart);
         })});
  }
  return kinds;
}

SquareSum sum_of(std::span<const float> values) {
  SquareSum sum;
  sum.add(values);
  return sum;
}

std::vector<std::int64_t> words(const SquareSum& sum) {
  return {sum.words().begin(), sum.words().end()};
}

TEST(SquareSums, are_the_exact_numbers_on_every_instruction_set) {
  for (const std::string& target : collectives::reduce_targets()) {
    ASSERT_TRUE(collectives::use_reduce_target(target));
    for (const auto& [name, values] : kinds_of_numbers()) {
      std::vector<std::int64_t> expected = BigNumber(values).digits();
      expected.insert(expected.end(), {0, 0});  // neither infinite nor NaN
      EXPECT_EQ(words(sum_of(values)), expected) << name << " by " << target;
    }
  }
  collectives::use_reduce_target("");
}

TEST(SquareSums, have_the_nearest_f64_as_their_value) {
  std::vector<Numbers> kinds = kinds_of_numbers();
  kinds.push_back({"below the middle", {1, 0x1p-27f}});
  kinds.push_back({"the middle above an even one", {1, 0x1p-27f, 0x1p-27f}});
  kinds.push_back({"the middle above an odd one", {1, 0x1p-26f, 0x1p-27f, 0x1p-27f}});
  kinds.push_back({"beyond the middle by the least", {1, 0x1p-27f, 0x1p-27f, smallest}});
  std::mt19937 random(5);
  for (int i = 0; i < (sanitized ? 200 : 5000); ++i) {
    kinds.push_back({"few, number " + std::to_string(i), {}});
    const int exponent = static_cast<int>(random() % 200) - 120;
    for (std::size_t count = 1 + random() % 4; count > 0; --count) {
      kinds.back().values.push_back(std::ldexp(static_cast<float>(random() % 16777216),
                                               exponent - static_cast<int>(random() % 60)));
    }
  }
  for (const auto& [name, values] : kinds) {
    EXPECT_EQ(sum_of(values).value(), BigNumber(values).nearest()) << name;
  }
}

TEST(SquareSums, do_not_depend_on_order_or_parts) {
  std::mt19937 random(3);
  for (const auto& [name, values] : kinds_of_numbers()) {
    const SquareSum whole = sum_of(values);
    std::vector<float> shuffled = values;
    for (int order = 0; order < 5; ++order) {
      std::ranges::shuffle(shuffled, random);
      std::vector<SquareSum> parts;
      for (std::span<const float> rest = shuffled; !rest.empty();) {
        const std::size_t count = 1 + random() % rest.size();
        parts.push_back(sum_of(rest.first(count)));
        rest = rest.subspan(count);
      }
      std::ranges::shuffle(parts, random);
      SquareSum sum;
      for (const SquareSum& part : parts) {
        sum += part;
      }
      EXPECT_EQ(words(sum), words(whole)) << name << " in " << parts.size() << " parts";
    }
  }
}

TEST(SquareSums, of_ranks_add_word_by_word) {
  for (const auto& [name, values] : kinds_of_numbers()) {
    const SquareSum whole = sum_of(values);
    for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
      std::vector<std::vector<float>> parts(ranks);
      for (std::size_t i = 0; i < values.size(); ++i) {
        parts[i * ranks / values.size()].push_back(values[i]);
      }
      std::array<SquareSum, 1> sum;
      const Elements into = words_of(sum);
      ASSERT_EQ(into.bytes(), sizeof sum);
      for (const std::vector<float>& part : parts) {
        const SquareSum of_rank = sum_of(part);
        for (std::size_t word = 0; word < into.count; ++word) {
          static_cast<std::int64_t*>(into.data)[word] += of_rank.words()[word];
        }
      }
      EXPECT_EQ(sum[0], whole) << name << " on " << ranks << " ranks";
      EXPECT_EQ(sum[0].value(), whole.value()) << name << " on " << ranks << " ranks";
      sum[0].add(std::span(&largest, 1));
      SquareSum more = whole;
      more += sum_of(std::span(&largest, 1));
      EXPECT_EQ(words(sum[0]), words(more)) << name << ", and one number more";
    }
  }
}

TEST(SquareSums, hold_the_largest_number_2_to_the_46_times) {
  SquareSum sum = sum_of(std::span(&largest, 1));
  for (int doublings = 1; doublings <= 46; ++doublings) {
    sum += sum;
    EXPECT_EQ(sum.value(), std::ldexp(double{largest} * double{largest}, doublings));
    const std::span<const std::int64_t> lower = sum.words().first(SquareSum::digits - 1);
    EXPECT_LT(*std::ranges::max_element(lower), std::int64_t{1} << 32) << "room for 2^30 ranks";
  }
}

TEST(SquareSums, are_not_finite_if_a_number_is_not) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t place : {0, 7, 2047, 2048, 4999}) {
    std::vector<float> values(5000, 3.0f);
    values[place] = -infinity;
    const SquareSum infinite = sum_of(values);
    EXPECT_EQ(infinite.value(), std::numeric_limits<double>::infinity()) << place;
    values[4998 - place % 2] = nan;
    const SquareSum both = sum_of(values);
    EXPECT_TRUE(std::isnan(both.value())) << place;
    SquareSum sum;
    sum += sum_of(std::vector<float>(4998, 3.0f));
    sum += sum_of(std::array{nan});
    sum += sum_of(std::array{infinity});
    EXPECT_EQ(words(sum), words(both)) << place << ": what is finite counts beside";
  }
}

TEST(SquareSums, do_not_depend_on_the_rounding_mode_of_the_thread) {
  for (const auto& [name, values] : kinds_of_numbers()) {
    const SquareSum expected = sum_of(values);
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(mode), 0);
      const SquareSum sum = sum_of(values);
      const double value = sum.value();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(words(sum), words(expected)) << name << ", mode " << mode;
      EXPECT_EQ(value, expected.value()) << name << ", mode " << mode;
    }
  }
}

#if defined(__SSE2__)
TEST(SquareSums, do_not_depend_on_the_denormal_mode_of_the_thread) {
  constexpr unsigned flush_and_zero = 0x8040;
  for (const auto& [name, values] : kinds_of_numbers()) {
    const SquareSum expected = sum_of(values);
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | flush_and_zero);
    const SquareSum sum = sum_of(values);
    const double value = sum.value();
    _mm_setcsr(before);
    EXPECT_EQ(words(sum), words(expected)) << name;
    EXPECT_EQ(value, expected.value()) << name;
  }
}
#endif

}  // namespace
}  // namespace sprat::square_sum_test
