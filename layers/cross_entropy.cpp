// Softmax cross entropy, by rows; the backward pass takes the exponentials again.
#include <cmath>

#include "comm/base/check.hpp"
#include "comm/base/vector.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

void check_targets(const CrossEntropy& layer) {
  for (std::size_t row = 0; row < layer.targets.size(); ++row) {
    require(layer.targets[row] >= 0 && layer.targets[row] < layer.vocabulary, "target ",
            layer.targets[row], " of row ", row, " is not in the vocabulary, which ends below ",
            layer.vocabulary, "; encode the text with the model's own vocabulary");
  }
}

SPRAT_CLONES void losses(const CrossEntropy& layer, const float* logits,
                         const CrossEntropyRows& rows) {
  const int width = layer.vocabulary;
  for (std::size_t row = 0; row < layer.targets.size(); ++row, logits += width) {
    // Less the highest no exponential overflows, and the shares stay the same.
    const float highest = maximum(width, logits);
    const float total = sum(width, [=](int i) { return fast_exp(logits[i] - highest); });
    rows.highest[row] = highest;
    rows.share[row] = 1.0f / total;
    rows.loss[row] = std::log(double{total}) + double{highest} - double{logits[layer.targets[row]]};
  }
}

SPRAT_CLONES void gradients(const CrossEntropy& layer, const CrossEntropyRows& rows, float scale,
                            float* logits) {
  const int width = layer.vocabulary;
  for (std::size_t row = 0; row < layer.targets.size(); ++row, logits += width) {
    const float highest = rows.highest[row], share = rows.share[row];
    for (int i = 0; i < width; ++i) {
      logits[i] = fast_exp(logits[i] - highest) * share;
    }
    logits[layer.targets[row]] -= 1.0f;
    for (int i = 0; i < width; ++i) {
      logits[i] *= scale;
    }
  }
}

}  // namespace

void cross_entropy_forward(const CrossEntropy& layer, const float* logits,
                           const CrossEntropyRows& rows) {
  check_targets(layer);
  losses(layer, logits, rows);
}

void cross_entropy_backward_input(const CrossEntropy& layer, const CrossEntropyRows& rows,
                                  float scale, float* logits) {
  check_targets(layer);
  gradients(layer, rows, scale, logits);
}

// A maximum, a difference, an exponential and a sum of each logit; then two products for the sum.
Cost cross_entropy_forward_cost(int vocabulary, std::size_t rows) noexcept {
  const std::uint64_t elements = std::uint64_t(vocabulary) * rows;
  return {.flops = 4 * elements, .bytes = sizeof(float) * elements + 20 * rows};
}
Cost cross_entropy_backward_input_cost(int vocabulary, std::size_t rows) noexcept {
  const std::uint64_t elements = std::uint64_t(vocabulary) * rows;
  return {.flops = 4 * elements, .bytes = 2 * sizeof(float) * elements + 12 * rows};
}

}  // namespace sprat::layers
