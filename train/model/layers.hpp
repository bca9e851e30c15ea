// The layers of a transformer, forward and backward, on row-major f32 memory of the caller's.
//
// Each backward adds into the gradients of parameters; where it adds into or overwrites the
// gradient of its input is said with it. Nothing depends on how many threads or ranks there are.
#pragma once

#include <cstdint>
#include <span>

#include "sprat/mp.hpp"

namespace sprat::train {

/// y = x weight^T + bias, for `rows` rows; weight is outputs x inputs.
struct Linear {
  const GemmBackend& gemm;
  int rows = 0, inputs = 0, outputs = 0;
  std::span<const float> weight, bias;
};
void linear_forward(const Linear& layer, const float* x, float* y);
/// y = residual + x weight^T + bias.
void linear_forward_onto(const Linear& layer, const float* residual, const float* x, float* y);
struct LinearGradients {
  const float* x = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;  ///< Overwritten.
  std::span<float> weight, bias;
};
void linear_backward(const Linear& layer, const LinearGradients& gradients);

/// y = (x - mean) / sqrt(variance + 1e-5) * gain + bias, by row of `width`.
struct LayerNorm {
  int rows = 0, width = 0;
  std::span<const float> gain, bias;
};
/// Keeps each row's mean and reciprocal deviation for the backward.
void layer_norm_forward(const LayerNorm& layer, const float* x, float* y, float* mean,
                        float* reciprocal);
struct LayerNormGradients {
  const float* x = nullptr;
  const float* mean = nullptr;
  const float* reciprocal = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;  ///< Added into.
  std::span<float> gain, bias;
};
void layer_norm_backward(const LayerNorm& layer, const LayerNormGradients& gradients);

/// The tanh form of GELU: y = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
void gelu_forward(std::span<const float> x, float* y);
/// dy becomes dx, in place.
void gelu_backward(std::span<const float> x, float* dy);

/// x[row] = token[tokens[row]] + position[row % length].
struct Embedding {
  int width = 0;
  int length = 0;  ///< Tokens of a sequence.
  std::span<const std::uint8_t> tokens;
};
void embedding_forward(const Embedding& layer, std::span<const float> token,
                       std::span<const float> position, float* x);
void embedding_backward(const Embedding& layer, const float* dx, std::span<float> token,
                        std::span<float> position);

/// Sum over rows of -log softmax(logits[row])[targets[row]]. The logits become scale times its
/// gradient, in place.
double cross_entropy(std::span<float> logits, std::span<const std::uint8_t> targets, float scale);

}  // namespace sprat::train
