// Kernels of exact sums of squares: squares are cut into multiples of a few powers of two, and
// those are added as integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sprat::fsdp {

/// Kernels take a multiple of this many numbers,
inline constexpr std::size_t squares_step = 16;
/// and at most these, so that the sum of a level has 62 bits and a sign.
inline constexpr std::size_t most_squares = 2048;
/// Bits of a square that one level takes.
inline constexpr int level_bits = 51;
/// As many as the squares of numbers of any size together need.
inline constexpr std::size_t most_levels = 11;

/// Bits, without their signs, of the largest number and of the smallest that is not zero; both 0 if
/// all are.
struct Magnitudes {
  std::uint32_t largest = 0, smallest = 0;
};
Magnitudes magnitudes(std::span<const float> values);

/// What each level adds up to, in units of 2^exponents[level]: together the exact sum of squares.
/// Every square is below 2^(exponents[0] + level_bits) and a multiple of 2^exponents.back(), and
/// each exponent is at most level_bits below the one before. As many sums as exponents, one or
/// more. The thread rounds to nearest and keeps denormals.
void sum_squares(std::span<const float> values, std::span<const int> exponents,
                 std::span<std::int64_t> sums);

}  // namespace sprat::fsdp
