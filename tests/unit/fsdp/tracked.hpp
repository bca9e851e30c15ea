// A number in double with a bound of how far f32 arithmetic may be from it.
#pragma once

#include <algorithm>
#include <cmath>

namespace sprat::fsdp {

/// Running error analysis (Higham, Accuracy and Stability, 3.3): each operation carries its
/// operands' errors on and adds one f32 rounding of its result. Errors of second order are below
/// the slack of `unit`, twice f32's 2^-24.
struct Tracked {
  double value = 0, error = 0;

  static constexpr double unit = 0x1p-23;
  static Tracked exact(double value) { return {value, 0}; }
  /// Of a double that is rounded to f32.
  static Tracked rounded(double value) { return {value, unit * std::abs(value)}; }
};

inline Tracked with_rounding(double value, double error) {
  return {value, error + Tracked::unit * std::abs(value)};
}
inline Tracked operator+(Tracked a, Tracked b) {
  return with_rounding(a.value + b.value, a.error + b.error);
}
inline Tracked operator-(Tracked a, Tracked b) {
  return with_rounding(a.value - b.value, a.error + b.error);
}
inline Tracked operator*(Tracked a, Tracked b) {
  return with_rounding(a.value * b.value, a.error * std::abs(b.value) +
                                              b.error * std::abs(a.value) + a.error * b.error);
}
inline Tracked operator/(Tracked a, Tracked b) {
  const double quotient = a.value / b.value;
  return with_rounding(quotient,
                       (a.error + std::abs(quotient) * b.error) / (std::abs(b.value) - b.error));
}
inline Tracked sqrt(Tracked a) {
  const double root = std::sqrt(a.value);
  return with_rounding(root, root - std::sqrt(std::max(0.0, a.value - a.error)));
}
/// -1, 0 or 1; any of them where the error does not decide.
inline Tracked sign(Tracked a) {
  const double value = (a.value > 0) - (a.value < 0);
  return {value, std::abs(a.value) <= a.error && a.error > 0 ? 2.0 : 0.0};
}

}  // namespace sprat::fsdp
