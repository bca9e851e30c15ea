// Causal self-attention by heads, forward and backward.
#pragma once

#include <cstddef>

#include "sprat/mp.hpp"

namespace sprat::train {

/// `batch` sequences of `length` tokens; a token's row holds query, key and value, `width` each,
/// and each of them the heads one after another.
struct Attention {
  const GemmBackend& gemm;
  int batch = 0, length = 0, heads = 0, width = 0;

  int head_width() const { return width / heads; }
  /// Elements of all weights: a length x length matrix for each sequence and head.
  std::size_t weight_count() const {
    return std::size_t{1} * batch * heads * static_cast<std::size_t>(length) * length;
  }
};
/// out (rows of `width`) <- softmax(query key^T / sqrt(head width)) value. Keeps the softmax in
/// `weights`; what lies above its diagonal blocks is not written.
void attention_forward(const Attention& layer, const float* qkv, float* weights, float* out);
struct AttentionGradients {
  const float* qkv = nullptr;
  const float* weights = nullptr;
  const float* dout = nullptr;
  float* dqkv = nullptr;     ///< Overwritten.
  float* scratch = nullptr;  ///< length * length elements.
};
void attention_backward(const Attention& layer, const AttentionGradients& gradients);

}  // namespace sprat::train
