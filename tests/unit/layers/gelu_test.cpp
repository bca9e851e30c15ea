// GELU within its roundings of double precision, and the residual stream.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::gelu {
namespace {

/// T is double, or complex for a slope.
template <class T>
T inner(const T& x) {
  return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}
template <class T>
T gelu_of(const T& x) {
  return x / (1.0 + std::exp(-2.0 * inner(x)));
}

/// One x, the gate y / x, and by how much the computed gate may err.
///
/// Its exponent is 2 inner(x), of products and a sum of one sign: 7 roundings with the constants'.
/// An exponential's relative error is weighed by gate * (1 - gate); a sum and a division follow.
/// The exponential ends at e^-87, so below that the gate errs by itself.
struct Gate {
  explicit Gate(double at) : x(at), gate(1 / (1 + std::exp(-2 * inner(at)))) {
    const double exponent = std::abs(2 * inner(at));
    error = gate * (1 - gate) * gamma(exponential_roundings + 7 * std::min(exponent, 88.0)) +
            gamma(2) * gate + 2 * std::exp(-87.0);
  }
  double x, gate, error = 0;
};

/// From where the gate is shut to where it is open, and around 0.
std::vector<float> points() {
  std::vector<float> x = random(1000, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= static_cast<float>(i) / 100;
  }
  x[0] = 0.0f;
  return x;
}

TEST(LayerKernels, gelu_is_the_tanh_form) {
  const std::vector<float> x = points();
  std::vector<float> y(x.size());
  layers::gelu_forward(x, y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Gate gate{double{x[i]}};
    const double exact = gelu_of(double{x[i]});
    EXPECT_NEAR(double{y[i]}, exact, std::abs(gate.x) * gate.error + gamma(1) * std::abs(exact))
        << x[i];
  }
}

TEST(LayerKernels, gelu_backward_input_multiplies_by_the_slope) {
  const std::vector<float> x = points(), dy = random(x.size(), 2);
  std::vector<float> dx = dy;
  layers::gelu_backward_input(x, dx.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Gate one{double{x[i]}};
    const double exact = slope(
        [](const std::vector<std::complex<double>>& at) { return gelu_of(at[0]); }, {one.x}, 0);
    // The slope is gate + rest, rest = 2 x gate (1 - gate) d inner / dx. 1 - gate errs as the gate
    // does and by a rounding; d inner / dx by 7, with the constants'; 4 products follow.
    const double inner_slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * one.x * one.x);
    const double shut = 1 - one.gate;
    const double factor = std::abs(2 * one.x * inner_slope);
    const double rest = factor * one.gate * shut;
    const double rest_error =
        factor * (one.error * shut + one.gate * (one.error + gamma(1) * shut)) +
        gamma(7 + 4) * rest;
    const double error = one.error + rest_error + gamma(1) * (one.gate + rest);
    EXPECT_NEAR(double{dx[i]}, exact * double{dy[i]},
                (error + gamma(1) * std::abs(exact)) * std::abs(double{dy[i]}))
        << x[i];
  }
}

TEST(LayerKernels, residual_adds_and_its_gradient_is_added) {
  const auto x = random(37, 1), branch = random(37, 2);
  std::vector<float> y(37), dx = x;
  layers::residual_forward(x, branch.data(), y.data());
  layers::residual_backward_input(branch, dx.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], x[i] + branch[i]);
  }
  EXPECT_EQ(dx, y);
}

TEST(LayerKernels, elementwise_layers_cost_in_proportion_to_their_elements) {
  EXPECT_EQ(layers::residual_cost(9), (layers::Cost{9, 3 * 4 * 9}));
  EXPECT_EQ(layers::gelu_forward_cost(9), (layers::Cost{10 * 9, 2 * 4 * 9}));
  EXPECT_EQ(layers::gelu_backward_input_cost(9), (layers::Cost{20 * 9, 3 * 4 * 9}));
}

}  // namespace
}  // namespace sprat::layers_test::gelu
