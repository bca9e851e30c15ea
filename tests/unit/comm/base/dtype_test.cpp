// The 16-bit and 8-bit floats against their definition: a significand times a power of two.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sprat/buffer.hpp"

namespace {

/// A format by its bits and fraction bits; the rest is exponent and sign.
struct Format {
  const char* name;
  int bits, fraction_bits;
  bool has_infinity;
  std::uint16_t quiet_nan;
  std::uint16_t (*narrow)(float);
  float (*widen)(std::uint16_t);

  int patterns() const { return 1 << bits; }
  int exponent_bits() const { return bits - 1 - fraction_bits; }
  int bias() const { return (1 << (exponent_bits() - 1)) - 1; }
  int sign() const { return 1 << (bits - 1); }
  /// The first pattern past the positive numbers: infinity or, of E4M3, NaN.
  std::uint16_t overflow() const {
    const int exponents = ((1 << exponent_bits()) - 1) << fraction_bits;
    return static_cast<std::uint16_t>(has_infinity ? exponents : sign() - 1);
  }
  /// What -x becomes where x becomes `result`: NaN has no sign here.
  int negated(std::uint16_t result) const { return result == quiet_nan ? result : result | sign(); }
};

const Format formats[] = {
    {"f16", 16, 10, true, 0x7e00, [](float x) { return sprat::to_float16(x).bits; },
     [](std::uint16_t bits) { return sprat::to_float(sprat::float16{bits}); }},
    {"bf16", 16, 7, true, 0x7fc0, [](float x) { return sprat::to_bfloat16(x).bits; },
     [](std::uint16_t bits) { return sprat::to_float(sprat::bfloat16{bits}); }},
    {"f8e4m3", 8, 3, false, 0x7f,
     [](float x) { return std::uint16_t{sprat::to_float8_e4m3(x).bits}; },
     [](std::uint16_t bits) {
       return sprat::to_float(sprat::float8_e4m3{static_cast<std::uint8_t>(bits)});
     }},
    {"f8e5m2", 8, 2, true, 0x7e,
     [](float x) { return std::uint16_t{sprat::to_float8_e5m2(x).bits}; },
     [](std::uint16_t bits) {
       return sprat::to_float(sprat::float8_e5m2{static_cast<std::uint8_t>(bits)});
     }},
};

bool is_nan(const Format& format, std::uint16_t bits) {
  const int magnitude = bits & (format.sign() - 1);
  return format.has_infinity ? magnitude > format.overflow() : magnitude == format.overflow();
}

/// The magnitude of a finite pattern, by the book. Past the largest: 2 to the next power.
double magnitude(const Format& format, std::uint16_t bits) {
  const int exponent = bits >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  if (exponent == 0) {
    return std::ldexp(fraction, 1 - format.bias() - format.fraction_bits);
  }
  return std::ldexp(fraction + (1 << format.fraction_bits),
                    exponent - format.bias() - format.fraction_bits);
}

std::uint32_t bits_of(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

TEST(Dtype, widening_gives_every_pattern_its_value) {
  for (const Format& format : formats) {
    for (int pattern = 0; pattern < format.patterns(); ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const float value = format.widen(bits);
      if (is_nan(format, bits)) {
        ASSERT_TRUE(std::isnan(value)) << format.name << " " << std::hex << pattern;
        continue;
      }
      const auto unsigned_bits = static_cast<std::uint16_t>(bits & (format.sign() - 1));
      const double size = unsigned_bits == format.overflow()
                              ? std::numeric_limits<double>::infinity()
                              : magnitude(format, unsigned_bits);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits_of(bits & format.sign() ? -size : size))
          << format.name << " " << std::hex << pattern;
    }
  }
}

TEST(Dtype, narrowing_returns_every_pattern_and_makes_one_nan) {
  for (const Format& format : formats) {
    for (int pattern = 0; pattern < format.patterns(); ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const std::uint16_t expected = is_nan(format, bits) ? format.quiet_nan : bits;
      ASSERT_EQ(format.narrow(format.widen(bits)), expected)
          << format.name << " " << std::hex << bits;
    }
  }
}

TEST(Dtype, narrowing_rounds_to_nearest_and_midpoints_to_even) {
  for (const Format& format : formats) {
    for (std::uint16_t below = 0; below < format.overflow(); ++below) {
      const auto above = static_cast<std::uint16_t>(below + 1);
      const double middle = (magnitude(format, below) + magnitude(format, above)) / 2;
      const auto midpoint = static_cast<float>(middle);
      ASSERT_EQ(static_cast<double>(midpoint), middle) << "a midpoint is an f32";
      const std::uint16_t even = below & 1 ? above : below;
      const float lower = std::nextafter(midpoint, 0.0f);
      const float upper = std::nextafter(midpoint, std::numeric_limits<float>::infinity());
      ASSERT_EQ(format.narrow(midpoint), even) << format.name << " " << midpoint;
      ASSERT_EQ(format.narrow(-midpoint), format.negated(even)) << format.name << " " << -midpoint;
      ASSERT_EQ(format.narrow(lower), below) << format.name << " " << lower;
      ASSERT_EQ(format.narrow(-lower), format.negated(below)) << format.name << " " << -lower;
      ASSERT_EQ(format.narrow(upper), above) << format.name << " " << upper;
      ASSERT_EQ(format.narrow(-upper), format.negated(above)) << format.name << " " << -upper;
    }
  }
}

TEST(Dtype, narrowing_keeps_signs_of_zero_and_overflows_past_the_numbers) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  for (const Format& format : formats) {
    EXPECT_EQ(format.narrow(0.0f), 0) << format.name;
    EXPECT_EQ(format.narrow(-0.0f), format.sign()) << format.name;
    EXPECT_EQ(format.narrow(tiny), 0) << format.name;
    EXPECT_EQ(format.narrow(-tiny), format.sign()) << format.name;
    EXPECT_EQ(format.narrow(huge), format.overflow()) << format.name;
    EXPECT_EQ(format.narrow(-huge), format.negated(format.overflow())) << format.name;
  }
}

TEST(Dtype, narrowing_makes_one_nan_of_all) {
  for (const Format& format : formats) {
    for (const std::uint32_t bits :
         {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffc00000u, 0x7f80ffffu}) {
      EXPECT_EQ(format.narrow(std::bit_cast<float>(bits)), format.quiet_nan)
          << format.name << " " << std::hex << bits;
    }
  }
}

TEST(Dtype, narrowing_to_8_bits_does_as_torch_does) {
  // torch.tensor(x).to(torch.float8_e4m3fn).view(torch.uint8), and float8_e5m2.
  EXPECT_EQ(sprat::to_float8_e4m3(448).bits, 0x7e);
  EXPECT_EQ(sprat::to_float8_e4m3(464).bits, 0x7e);
  EXPECT_EQ(sprat::to_float8_e4m3(465).bits, 0x7f);
  EXPECT_EQ(sprat::to_float8_e4m3(-448).bits, 0xfe);
  EXPECT_EQ(sprat::to_float8_e4m3(std::numeric_limits<float>::infinity()).bits, 0x7f);
  EXPECT_EQ(sprat::to_float8_e5m2(57344).bits, 0x7b);
  EXPECT_EQ(sprat::to_float8_e5m2(61439).bits, 0x7b);
  EXPECT_EQ(sprat::to_float8_e5m2(61440).bits, 0x7c);
  EXPECT_EQ(sprat::to_float8_e5m2(-61440).bits, 0xfc);
}

}  // namespace
