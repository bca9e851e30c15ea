// The residual stream: a sum of two, forward and backward.
#include "comm/base/vector.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

SPRAT_CLONES void add_residual(std::size_t count, const float* left, const float* right,
                               float* sum) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = left[i] + right[i];
  }
}

}  // namespace

void residual_forward(std::span<const float> x, const float* branch, float* y) {
  add_residual(x.size(), x.data(), branch, y);
}

// The stream's own gradient stands left, as dx += dy has it.
void residual_backward_input(std::span<const float> dy, float* dx) {
  add_residual(dy.size(), dx, dy.data(), dx);
}

Cost residual_cost(std::size_t count) noexcept {
  return {.flops = count, .bytes = 3 * sizeof(float) * count};
}

}  // namespace sprat::layers
