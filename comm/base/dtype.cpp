// Conversions between f32 and the narrower floats, one value at a time, in integers alone.
#include <bit>

#include "sprat/buffer.hpp"

namespace sprat {

namespace {

constexpr std::uint32_t infinity = 0x7f800000;

/// bits / 2^shift, rounded to nearest even. Half a unit, less one where the quotient is even, is
/// added before the shift: the sum carries exactly where the value is to be rounded up.
std::uint32_t shift_rounding(std::uint32_t bits, int shift) {
  const std::uint32_t odd = bits >> shift & 1;
  return (bits + odd + ((1u << (shift - 1)) - 1)) >> shift;
}

/// A format with an exponent of its own: a sign, an exponent, a fraction. The largest exponent is
/// infinity and NaN or, without infinities, a number like others but for the last pattern.
struct Format {
  int bits, fraction_bits;
  bool has_infinity;

  int bias() const { return (1 << (bits - 2 - fraction_bits)) - 1; }
  std::uint32_t sign() const { return 1u << (bits - 1); }
  std::uint32_t last() const { return sign() - 1; }
  /// What a number too large becomes: the first pattern past the numbers.
  std::uint32_t overflow() const {
    return has_infinity ? last() >> fraction_bits << fraction_bits : last();
  }
  std::uint32_t quiet_nan() const {
    return has_infinity ? overflow() | 1u << (fraction_bits - 1) : last();
  }
};

constexpr Format binary16 = {.bits = 16, .fraction_bits = 10, .has_infinity = true};
constexpr Format e4m3 = {.bits = 8, .fraction_bits = 3, .has_infinity = false};
constexpr Format e5m2 = {.bits = 8, .fraction_bits = 2, .has_infinity = true};

std::uint32_t narrow(const Format& format, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > infinity) {
    return format.quiet_nan();
  }
  const int shift = 23 - format.fraction_bits;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const int least = 1 - format.bias();  // the exponent of the smallest normal number
  std::uint32_t result = 0;
  // A format without infinities uses its largest exponent for numbers too.
  if (exponent > format.bias() + (format.has_infinity ? 0 : 1)) {
    result = format.overflow();
  } else if (exponent >= least) {
    result =
        shift_rounding(magnitude - static_cast<std::uint32_t>((127 - format.bias()) << 23), shift);
    // In E4M3 a value that rounds up may carry past the last pattern, which is its NaN.
    if (result > format.overflow()) {
      result = format.overflow();
    }
  } else if (exponent >= least - format.fraction_bits - 1) {
    // A unit of the result is 2^(least - fraction_bits), one of the significand 2^(exponent - 23).
    const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    result = shift_rounding(significand, shift + least - exponent);
  }
  if (result == format.quiet_nan()) {
    return result;  // E4M3 overflowed: docs/numerics.md promises one NaN without a sign
  }
  return (bits >> 31) * format.sign() | result;
}

float widen(const Format& format, std::uint32_t bits) {
  const std::uint32_t sign = (bits & format.sign()) << (32 - format.bits);
  const std::uint32_t magnitude = bits & format.last();
  const int shift = 23 - format.fraction_bits;
  std::uint32_t result = 0;
  if (magnitude >= format.overflow()) {
    result = format.has_infinity ? infinity | magnitude << shift : 0x7fc00000;
  } else if (magnitude >> format.fraction_bits != 0) {
    result = (magnitude << shift) + static_cast<std::uint32_t>((127 - format.bias()) << 23);
  } else if (magnitude != 0) {
    // A denormal number has no hidden bit. In f32 it is normal, so its leading bit becomes hidden.
    const int leading = std::bit_width(magnitude) - 1;
    const int exponent = 1 - format.bias() - format.fraction_bits + leading;
    result =
        static_cast<std::uint32_t>(127 + exponent) << 23 | (magnitude << (23 - leading) & 0x7fffff);
  }
  return std::bit_cast<float>(sign | result);
}

}  // namespace

float16 to_float16(float value) noexcept {
  return {static_cast<std::uint16_t>(narrow(binary16, value))};
}

float8_e4m3 to_float8_e4m3(float value) noexcept {
  return {static_cast<std::uint8_t>(narrow(e4m3, value))};
}

float8_e5m2 to_float8_e5m2(float value) noexcept {
  return {static_cast<std::uint8_t>(narrow(e5m2, value))};
}

bfloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN whose fraction lies in the lower half alone would be cut to infinity, so NaNs come first.
  if ((bits & 0x7fffffff) > infinity) {
    return {0x7fc0};
  }
  return {static_cast<std::uint16_t>(shift_rounding(bits, 16))};
}

float to_float(float16 value) noexcept { return widen(binary16, value.bits); }
float to_float(float8_e4m3 value) noexcept { return widen(e4m3, value.bits); }
float to_float(float8_e5m2 value) noexcept { return widen(e5m2, value.bits); }

float to_float(bfloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

}  // namespace sprat
