// A sum of squares of f32 that is exact, so that its bits depend on no order and on no cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sprat/buffer.hpp"
#include "sprat/export.hpp"

namespace sprat {

/// The sum of the squares of any numbers, of up to 2^46 together, as a real number without
/// rounding: a fixed-point number of integer words. Whoever adds which of them, in which order and
/// in how many parts, the result is the same.
class SPRAT_API SquareSum {
 public:
  static constexpr int digit_bits = 32;
  static constexpr int digits = 18;
  /// Of the lowest digit. The square of the smallest f32 is 2^-298, that of the largest below
  /// 2^256.
  static constexpr int lowest_exponent = -304;

  /// Adds the square of each. Any thread; its rounding and denormal modes do not matter.
  void add(std::span<const float> values);
  SquareSum& operator+=(const SquareSum& other);
  /// The nearest f64, of two the even one. NaN if any number was, else infinite if any was.
  double value() const;

  /// Digits, lowest first, then how many numbers were infinite and how many NaN. Digits are below
  /// 2^32 but for the highest. So words of up to 2^30 ranks may be added one by one, as integers,
  /// and are their sum: see words_of().
  std::span<const std::int64_t, digits + 2> words() const { return words_; }
  /// Whether both are one number.
  bool operator==(const SquareSum& other) const;

 private:
  void add_group(std::span<const float> values);
  void add_multiple(std::int64_t factor, int exponent);
  void carry();

  std::array<std::int64_t, digits + 2> words_{};
};

/// All their words, for an all_reduce by ReduceOp::sum, whose results are again such sums.
SPRAT_API Elements words_of(std::span<SquareSum> sums);

}  // namespace sprat
