// Conversions between f32 and the 16-bit floats, one value at a time, in integers alone.
#include <bit>

#include "sprat/buffer.hpp"

namespace sprat {

namespace {

constexpr std::uint32_t infinity = 0x7f800000;

/// bits / 2^shift, rounded to nearest even.
std::uint32_t shift_rounding(std::uint32_t bits, int shift) {
  const std::uint32_t odd = bits >> shift & 1;
  return (bits + odd + ((1u << (shift - 1)) - 1)) >> shift;
}

}  // namespace

float16 to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > infinity) return {0x7e00};
  std::uint32_t result = 0;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= 16) {
    result = 0x7c00;
  } else if (exponent >= -14) {
    result = shift_rounding(magnitude - ((127 - 15) << 23), 13);
  } else if (exponent >=
             -25) {  // A unit of the result is 2^-24, one of the significand 2^(exponent-23).
    const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    result = shift_rounding(significand, -1 - exponent);
  }
  return {static_cast<std::uint16_t>(sign | result)};
}

bfloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > infinity) return {0x7fc0};
  return {static_cast<std::uint16_t>(shift_rounding(bits, 16))};
}

float to_float(float16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fff;
  std::uint32_t result = 0;
  if (magnitude >= 0x7c00) {
    result = infinity | magnitude << 13;
  } else if (magnitude >= 0x0400) {
    result = (magnitude << 13) + ((127 - 15) << 23);
  } else if (magnitude != 0) {  // magnitude * 2^-24, whose leading bit becomes the hidden one.
    const int leading = std::bit_width(magnitude) - 1;
    result = static_cast<std::uint32_t>(127 - 24 + leading) << 23 |
             (magnitude << (23 - leading) & 0x7fffff);
  }
  return std::bit_cast<float>(sign | result);
}

float to_float(bfloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

}  // namespace sprat
