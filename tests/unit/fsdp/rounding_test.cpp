// Rounding of spans: every pattern, the nearest, the mean of random ones, whoever rounds which
// part.
#include "fsdp/rounding.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "sprat/error.hpp"

namespace sprat::fsdp {
namespace {

constexpr std::size_t patterns = 65536;
const DType narrow_types[] = {DType::bf16, DType::f16};

float value_of(DType type, std::uint16_t bits) {
  return type == DType::bf16 ? to_float(bfloat16{bits}) : to_float(float16{bits});
}
std::uint16_t nearest_of(DType type, float value) {
  return type == DType::bf16 ? to_bfloat16(value).bits : to_float16(value).bits;
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> bits(patterns);
  for (std::size_t i = 0; i < patterns; ++i) {
    bits[i] = static_cast<std::uint16_t>(i);
  }
  return bits;
}

std::vector<float> widened(DType type, const std::vector<std::uint16_t>& bits) {
  std::vector<float> values(bits.size());
  widen(type, bits.data(), values);
  return values;
}
std::vector<std::uint16_t> narrowed(DType type, std::span<const float> values) {
  std::vector<std::uint16_t> bits(values.size());
  narrow(type, values, bits.data());
  return bits;
}
std::vector<std::uint16_t> drawn(DType type, std::span<const float> values, RoundingKey key = {}) {
  std::vector<std::uint16_t> bits(values.size());
  narrow_stochastically(type, values, bits.data(), key);
  return bits;
}

/// Values of every size and sign, many of them halfway between neighbours or beside that.
std::vector<float> many_values() {
  std::vector<float> values;
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  for (const DType type : narrow_types) {
    for (std::uint32_t bits = 0; bits < patterns; bits += 7) {
      const float value = value_of(type, static_cast<std::uint16_t>(bits));
      const auto wide = std::bit_cast<std::uint32_t>(value);
      for (const std::uint32_t half : {0x1000u, 0x8000u}) {
        for (const std::uint32_t beside : {half - 1, half, half + 1}) {
          values.push_back(std::bit_cast<float>(wide | beside));
        }
      }
    }
  }
  return values;
}

/// Runs `check` with the kernels of every instruction set of this processor.
template <class Check>
void on_every_target(const Check& check) {
  for (const std::string& target : collectives::reduce_targets()) {
    ASSERT_TRUE(collectives::use_reduce_target(target));
    SCOPED_TRACE(target);
    check();
  }
  collectives::use_reduce_target("");
}

TEST(Rounding, widens_every_pattern_and_returns_it) {
  on_every_target([] {
    for (const DType type : narrow_types) {
      const auto values = widened(type, all_patterns());
      const auto nearest = narrowed(type, values);
      const auto random = drawn(type, values, {.seed = 5});
      for (std::size_t i = 0; i < patterns; ++i) {
        const float value = value_of(type, static_cast<std::uint16_t>(i));
        const std::uint16_t kept =
            std::isnan(value) ? nearest_of(type, std::nanf("")) : static_cast<std::uint16_t>(i);
        if (!std::isnan(value)) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(value))
              << name(type) << " pattern " << i;
        }
        ASSERT_EQ(std::isnan(values[i]), std::isnan(value)) << name(type) << " pattern " << i;
        ASSERT_EQ(nearest[i], kept) << name(type) << " pattern " << i;
        ASSERT_EQ(random[i], kept) << name(type) << " pattern " << i;
      }
    }
  });
}

TEST(Rounding, is_to_nearest_even) {
  const std::vector<float> values = many_values();
  on_every_target([&] {
    for (const DType type : narrow_types) {
      const auto bits = narrowed(type, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(bits[i], nearest_of(type, values[i])) << name(type) << " of " << values[i];
      }
    }
  });
}

TEST(Rounding, works_in_place_and_at_every_length) {
  const std::vector<float> values = many_values();
  for (const DType type : narrow_types) {
    for (std::size_t count = 0; count < 130; ++count) {
      const auto expected = narrowed(type, std::span(values).first(count));
      std::vector<float> buffer(values.begin(), values.begin() + static_cast<long>(count));
      narrow(type, buffer, buffer.data());
      std::vector<std::uint16_t> half(count);
      if (count > 0) {
        std::memcpy(half.data(), buffer.data(), 2 * count);
      }
      ASSERT_EQ(half, expected) << name(type) << ", " << count << " elements";
    }
  }
}

TEST(Rounding, of_f32_is_a_copy) {
  const std::vector<float> values = many_values();
  std::vector<float> copy(values.size()), back(values.size());
  narrow(DType::f32, values, copy.data());
  widen(DType::f32, copy.data(), back);
  EXPECT_EQ(std::memcmp(values.data(), back.data(), 4 * values.size()), 0);
}

// The generator again, one counter at a time, as its paper writes it.

using Four = std::array<std::uint32_t, 4>;
Four philox(Four counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

// Of the file kat_vectors of the authors' library Random123.
TEST(Philox, gives_its_known_answers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// The random word of the element at `index`.
std::uint32_t word(const RoundingKey& key, std::uint64_t index) {
  const std::uint64_t block = index / 64 * 16 + index % 16;
  const Four words =
      philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
              static_cast<std::uint32_t>(key.step), key.unit},
             {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  return words[index % 64 / 16];
}

/// The definition: up if the rest, in units of the narrow type there, and a uniform draw exceed 1.
std::uint16_t random_of(DType type, float value, std::uint32_t random) {
  if (!std::isfinite(value)) {
    return nearest_of(type, value);
  }
  const double magnitude = std::abs(double{value});
  const int bits = type == DType::bf16 ? 8 : 11;       // of a significand
  const int least = type == DType::bf16 ? -126 : -14;  // exponent of the smallest normal number
  const int exponent = std::max(least, magnitude > 0 ? std::ilogb(magnitude) : least);
  const int draws = type == DType::bf16 ? 16 : magnitude < 0x1p-14 ? 21 : 13;
  const double unit = std::ldexp(1.0, exponent - bits + 1);
  const double draw = std::ldexp(static_cast<double>(random >> (32 - draws)), -draws);
  const double rest = std::floor(std::ldexp(magnitude / unit, draws)) * std::ldexp(1.0, -draws);
  const double rounded = std::copysign(std::floor(rest + draw) * unit, double{value});
  return nearest_of(type, static_cast<float>(rounded));  // exact, or infinity
}

TEST(StochasticRounding, follows_its_definition_on_every_target) {
  const std::vector<float> values = many_values();
  const RoundingKey keys[] = {
      {},
      {.seed = 0x0123456789abcdef, .step = 0xfffffffe, .unit = 77, .first = 0x3ffffffffff},
  };
  on_every_target([&] {
    for (const DType type : narrow_types) {
      for (const RoundingKey& key : keys) {
        const auto bits = drawn(type, values, key);
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(bits[i], random_of(type, values[i], word(key, key.first + i)))
              << name(type) << " of " << values[i] << ", element " << i;
        }
      }
    }
  });
}

TEST(StochasticRounding, has_the_same_bits_whoever_rounds_which_part) {
  const std::vector<float> values = many_values();
  for (const DType type : narrow_types) {
    const RoundingKey key = {.seed = 3, .step = 9, .unit = 1, .first = 1024};
    const auto whole = drawn(type, values, key);
    for (const std::size_t piece : {1u, 3u, 17u, 64u, 100u, 1024u}) {
      std::vector<std::uint16_t> pieces(values.size());
      for (std::size_t at = 0; at < values.size(); at += piece) {
        RoundingKey part = key;
        part.first += at;
        narrow_stochastically(type,
                              std::span(values).subspan(at, std::min(piece, values.size() - at)),
                              pieces.data() + at, part);
      }
      ASSERT_EQ(pieces, whole) << name(type) << " in pieces of " << piece;
    }
  }
}

TEST(StochasticRounding, works_in_place) {
  std::vector<float> buffer = many_values();
  const auto expected = drawn(DType::bf16, buffer, {.seed = 2});
  narrow_stochastically(DType::bf16, buffer, buffer.data(), {.seed = 2});
  EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), 2 * expected.size()), 0);
}

// Each draw is low or high with mean `value`, so the mean of N has a deviation of at most half
// their distance over sqrt(N). Six of them: a chance of 2e-9 for each value, and the seed is fixed.
TEST(StochasticRounding, has_the_value_as_its_mean) {
  constexpr std::size_t count = 1 << 16;
  for (const DType type : narrow_types) {
    for (const float value : {1.001f, -3.3f, 0.7654321f, 1e-3f, -2.7e-6f, 1e-7f, 6e4f}) {
      const std::vector<float> values(count, value);
      const auto bits = drawn(type, values, {.seed = 11});
      double sum = 0, low = double{value}, high = double{value};
      for (const std::uint16_t one : bits) {
        const double rounded = double{value_of(type, one)};
        sum += rounded;
        low = std::min(low, rounded);
        high = std::max(high, rounded);
      }
      const double deviation = (high - low) / 2 / std::sqrt(static_cast<double>(count));
      EXPECT_NEAR(sum / count, double{value}, 6 * deviation + 0x1p-45)
          << name(type) << " of " << value;
    }
  }
}

TEST(StochasticRounding, draws_differ_by_seed_step_unit_and_element) {
  const std::vector<float> values(4096, 1.0f + 0x1p-9f);
  const RoundingKey keys[] = {{}, {.seed = 1}, {.step = 1}, {.unit = 1}, {.first = 4096}};
  std::vector<std::vector<std::uint16_t>> all;
  for (const RoundingKey& key : keys) {
    all.push_back(drawn(DType::bf16, values, key));
    for (std::size_t other = 0; other + 1 < all.size(); ++other) {
      EXPECT_NE(all[other], all.back());
    }
  }
}

TEST(Rounding, refuses_what_is_no_type_of_parameters) {
  const std::vector<float> values(4);
  std::vector<double> to(4);
  EXPECT_THROW(narrow(DType::f64, values, to.data()), Error);
  EXPECT_THROW(narrow_stochastically(DType::f32, values, to.data(), {}), Error);
  EXPECT_THROW(
      narrow_stochastically(DType::bf16, values, to.data(), {.step = std::int64_t{1} << 32}),
      Error);
}

}  // namespace
}  // namespace sprat::fsdp
