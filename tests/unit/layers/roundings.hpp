// What tests of layers share: values, backends, references in double precision, and bounds.
//
// A bound is gamma(n) times the magnitude of what is added up, where n counts the roundings that a
// result may have gone through. References are f64; slopes are taken by a complex step.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "comm/base/vector.hpp"
#include "sprat/mp.hpp"

namespace sprat::layers_test {

/// By how much n roundings of f32 may change a value, relative to it (Higham 2002, lemma 3.1).
/// Counts one more for the reference, whose f64 rounds 2^29 times finer.
inline double gamma(double n) {
  const double roundoff = 0x1p-24 * (n + 1);
  return roundoff / (1 - roundoff);
}

/// Roundings of a sum in lanes.
inline int sum_roundings(int count) { return (count + lanes - 1) / lanes + 4; }

/// Roundings that an exponential errs by: 2 ulp.
inline constexpr int exponential_roundings = 4;

/// Uniform in [-2, 2).
inline std::vector<float> random(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int32_t>(generator())) * 0x1p-30f;
  }
  return values;
}

inline std::vector<std::shared_ptr<const GemmBackend>> backends() {
  return {open_gemm_backend(choose_gemm_backend()), open_gemm_backend("reference")};
}

/// d f / d x[index] at x. The imaginary part of f(x + ih) / h has no difference of near numbers, so
/// h may be tiny, and only f64's roundings remain (Squire and Trapp 1998).
template <class Function>
double slope(const Function& f, const std::vector<double>& x, std::size_t index) {
  constexpr double step = 1e-30;
  std::vector<std::complex<double>> moved(x.begin(), x.end());
  moved[index] += std::complex<double>(0, step);
  return f(moved).imag() / step;
}

}  // namespace sprat::layers_test
