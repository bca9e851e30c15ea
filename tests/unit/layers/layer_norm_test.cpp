// Layer norm within its roundings of double precision, forward and backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::layer_norm {
namespace {

constexpr int rows = 7;

struct NormCase {
  NormCase(int columns, float spread)
      : width(columns),
        x(random(static_cast<std::size_t>(rows * width), 1)),
        gain(random(static_cast<std::size_t>(width), 2)),
        bias(random(static_cast<std::size_t>(width), 3)),
        dy(random(x.size(), 4)),
        y(x.size()),
        mean(rows),
        reciprocal(rows) {
    for (float& value : x) {
      value *= spread;
    }
    layers::layer_norm_forward({.shape = shape(), .gain = gain, .bias = bias}, x.data(), y.data(),
                               mean.data(), reciprocal.data());
  }
  layers::LayerNormShape shape() const { return {.rows = rows, .width = width}; }
  layers::LayerNormPass pass() const {
    return {.x = x.data(), .mean = mean.data(), .reciprocal = reciprocal.data(), .dy = dy.data()};
  }
  std::vector<double> row_of(const std::vector<float>& matrix, int row) const {
    const auto begin = matrix.begin() + std::ptrdiff_t{row} * width;
    return {begin, begin + width};
  }
  const int width;
  std::vector<float> x;
  const std::vector<float> gain, bias, dy;
  std::vector<float> y, mean, reciprocal;
};

/// (x - mean) / deviation; T is double, or complex for a slope.
template <class T>
std::vector<T> units(std::vector<T> x) {
  const double width = static_cast<double>(x.size());
  T mean = 0, variance = 0;
  for (const T& value : x) {
    mean += value / width;
  }
  for (const T& value : x) {
    variance += (value - mean) * (value - mean) / width;
  }
  for (T& value : x) {
    value = (value - mean) / std::sqrt(variance + double{1e-5f});
  }
  return x;
}

/// One row in double precision, and what its roundings are relative to.
///
/// The mean of n = width terms errs by gamma(sum_roundings(n) + 2) of their mean magnitude. It
/// moves all deviations alike, so the variance sees it by its square only, and errs by gamma(sum +
/// 6): two differences, a product, the sum, the share, epsilon. The reciprocal deviation has half
/// of that, and a root and a division. So a unit, (x - mean) * reciprocal, errs by less than
/// gamma(unit_roundings) of itself and the mean's magnitude.
struct ExactRow {
  ExactRow(const NormCase& one, int row) : unit(units(one.row_of(one.x, row))) {
    const std::vector<double> x = one.row_of(one.x, row);
    double mean = 0, variance = 0;
    for (const double value : x) {
      mean += value / one.width;
      mean_magnitude += std::abs(value) / one.width;
    }
    for (const double value : x) {
      variance += (value - mean) * (value - mean) / one.width;
    }
    reciprocal = 1 / std::sqrt(variance + double{1e-5f});
  }
  double unit_magnitude(int i) const { return reciprocal * mean_magnitude + std::abs(unit[i]); }

  std::vector<double> unit;
  double mean_magnitude = 0, reciprocal = 0;
};
int unit_roundings(int width) { return sum_roundings(width) + 8; }

/// Of several widths, and spread so little that epsilon is the larger part of the variance.
std::vector<NormCase> norm_cases() {
  std::vector<NormCase> all;
  for (const int width : {1, 16, 24, 41, 300}) {
    all.emplace_back(width, 1.0f);
    all.emplace_back(width, 0x1p-10f);
  }
  return all;
}

TEST(LayerKernels, layer_norm_has_mean_0_and_variance_1_before_gain_and_bias) {
  for (const NormCase& one : norm_cases()) {
    const int width = one.width;
    for (int row = 0; row < rows; ++row) {
      const ExactRow exact(one, row);
      for (int i = 0; i < width; ++i) {
        const double gain = double{one.gain[i]}, bias = double{one.bias[i]};
        const double magnitude = std::abs(gain) * exact.unit_magnitude(i) + std::abs(bias);
        ASSERT_NEAR(double{one.y[row * width + i]}, exact.unit[i] * gain + bias,
                    gamma(unit_roundings(width) + 2) * magnitude)
            << "width " << width << " row " << row;
      }
    }
  }
}

TEST(LayerKernels, layer_norm_backward_input_adds_the_slope) {
  for (const NormCase& one : norm_cases()) {
    const int width = one.width;
    const std::vector<float> stream = random(one.x.size(), 5);
    std::vector<float> dx = stream;
    layers::layer_norm_backward_input(one.shape(), one.gain, one.pass(), dx.data());
    for (int row = 0; row < rows; ++row) {
      const ExactRow exact(one, row);
      const auto along = [&](const std::vector<std::complex<double>>& x) {
        const auto unit = units(x);
        std::complex<double> sum = 0;
        for (int i = 0; i < width; ++i) {
          sum += unit[i] * double{one.gain[i]} * double{one.dy[row * width + i]};
        }
        return sum;
      };
      double mean = 0, largest = 0;  // of |dy gain|, of a unit's magnitude
      for (int i = 0; i < width; ++i) {
        mean += std::abs(double{one.dy[row * width + i]} * double{one.gain[i]}) / width;
        largest = std::max(largest, exact.unit_magnitude(i));
      }
      // dx = reciprocal * (dy gain - mean(dy gain) - unit * mean(dy gain unit)). The last term errs
      // most: by two units, a sum and 5 products in 3 * sum + 21 roundings of mean * largest^2; two
      // differences, the reciprocal and the stream add sum + 10.
      const int roundings = 4 * sum_roundings(width) + 31;
      for (int i = 0; i < width; ++i) {
        const double own = std::abs(double{one.dy[row * width + i]} * double{one.gain[i]});
        const double start = double{stream[row * width + i]};
        const double magnitude =
            exact.reciprocal * (own + mean + mean * largest * largest) + std::abs(start);
        ASSERT_NEAR(double{dx[row * width + i]},
                    start + slope(along, one.row_of(one.x, row), std::size_t(i)),
                    gamma(roundings) * magnitude)
            << "width " << width << " row " << row;
      }
    }
  }
}

TEST(LayerKernels, layer_norm_backward_weight_adds_sums_over_rows) {
  for (const NormCase& one : norm_cases()) {
    const int width = one.width;
    std::vector<float> gain(std::size_t(width), 0.5f), bias(std::size_t(width), -0.5f);
    layers::layer_norm_backward_weight(one.shape(), one.pass(), gain, bias);
    for (int i = 0; i < width; ++i) {
      double dgain = 0.5, dbias = -0.5, gain_magnitude = 0.5, bias_magnitude = 0.5;
      for (int row = 0; row < rows; ++row) {
        const ExactRow exact(one, row);
        const double dy = double{one.dy[row * width + i]};
        dgain += dy * exact.unit[i];
        gain_magnitude += std::abs(dy) * exact.unit_magnitude(i);
        dbias += dy;
        bias_magnitude += std::abs(dy);
      }
      ASSERT_NEAR(double{gain[i]}, dgain, gamma(unit_roundings(width) + 1 + rows) * gain_magnitude);
      ASSERT_NEAR(double{bias[i]}, dbias, gamma(rows) * bias_magnitude);
    }
  }
}

TEST(LayerKernels, layer_norm_costs_what_its_loops_read_and_write) {
  const layers::LayerNormShape shape{.rows = 3, .width = 5};
  EXPECT_EQ(layers::layer_norm_forward_cost(shape), (layers::Cost{8 * 15, 4 * (2 * 15 + 6 + 10)}));
  EXPECT_EQ(layers::layer_norm_backward_input_cost(shape),
            (layers::Cost{14 * 15, 4 * (4 * 15 + 6 + 5)}));
  EXPECT_EQ(layers::layer_norm_backward_weight_cost(shape),
            (layers::Cost{5 * 15, 4 * (2 * 15 + 6 + 20)}));
}

}  // namespace
}  // namespace sprat::layers_test::layer_norm
