// GELU by its tanh form, as GPT-2 has it, element by element.
#include "comm/base/vector.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

constexpr float gelu_scale = 0.797884561f;  // sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715f;

// (1 + tanh(u)) / 2 is the logistic function of 2u, which takes one exponential.
SPRAT_INLINE float gelu_gate(float x) {
  const float u = gelu_scale * (x + gelu_cubic * x * x * x);
  return 1.0f / (1.0f + fast_exp(-2.0f * u));
}

SPRAT_CLONES void gelu(std::size_t count, const float* x, float* y) {
  for (std::size_t i = 0; i < count; ++i) {
    y[i] = x[i] * gelu_gate(x[i]);
  }
}

SPRAT_CLONES void gelu_slope(std::size_t count, const float* x, float* dy) {
  for (std::size_t i = 0; i < count; ++i) {
    const float gate = gelu_gate(x[i]);
    const float du = gelu_scale * (1.0f + 3.0f * gelu_cubic * x[i] * x[i]);
    dy[i] *= gate + 2.0f * x[i] * gate * (1.0f - gate) * du;
  }
}

}  // namespace

void gelu_forward(std::span<const float> x, float* y) { gelu(x.size(), x.data(), y); }

void gelu_backward_input(std::span<const float> x, float* dy) {
  gelu_slope(x.size(), x.data(), dy);
}

// Operations as the loops above have them.
Cost gelu_forward_cost(std::size_t count) noexcept {
  return {.flops = 10 * count, .bytes = 2 * sizeof(float) * count};
}
Cost gelu_backward_input_cost(std::size_t count) noexcept {
  return {.flops = 20 * count, .bytes = 3 * sizeof(float) * count};
}

}  // namespace sprat::layers
