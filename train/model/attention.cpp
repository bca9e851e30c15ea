// Attention on one sequence and head at a time, in blocks of queries that skip the keys after them.
#include "train/model/attention.hpp"

#include <algorithm>
#include <cmath>

#include "comm/base/vector.hpp"

namespace sprat::train {
namespace {

// Queries that share one product: few enough that little is computed beyond the diagonal.
constexpr int block_length = 64;

/// One sequence and head: views of its rows in query-key-value and in the output.
struct Head {
  int length, width;
  int qkv_stride, out_stride;
  std::ptrdiff_t query, key, value, out;  // offsets of row 0
};

Head head_of(const Attention& layer, int sequence, int head) {
  const std::ptrdiff_t row = std::ptrdiff_t{sequence} * layer.length;
  const int column = head * layer.head_width();
  const std::ptrdiff_t query = row * 3 * layer.width + column;
  return {.length = layer.length,
          .width = layer.head_width(),
          .qkv_stride = 3 * layer.width,
          .out_stride = layer.width,
          .query = query,
          .key = query + layer.width,
          .value = query + 2 * layer.width,
          .out = row * layer.width + column};
}

/// Rows [first, last) of scores become weights over the keys up to each row's own; the rest of the
/// first `last` columns becomes 0.
SPRAT_CLONES void causal_softmax(int first, int last, int stride, float scale, float* scores) {
  for (int row = first; row < last; ++row) {
    float* x = scores + std::ptrdiff_t{row} * stride;
    const int count = row + 1;
    const float highest = maximum(count, x) * scale;
    for (int i = 0; i < last; ++i) {
      const float weight = fast_exp(x[i] * scale - highest);
      x[i] = i < count ? weight : 0.0f;
    }
    const float share = 1.0f / sum(last, [=](int i) { return x[i]; });
    for (int i = 0; i < last; ++i) {
      x[i] *= share;
    }
  }
}

/// Rows [first, last): gradients of weights become gradients of unscaled scores, times scale.
SPRAT_CLONES void softmax_backward(int first, int last, int stride, float scale,
                                   const float* weights, float* gradients) {
  for (int row = first; row < last; ++row) {
    const float* w = weights + std::ptrdiff_t{row} * stride;
    float* g = gradients + std::ptrdiff_t{row} * stride;
    const float along = sum(last, [=](int i) { return w[i] * g[i]; });
    for (int i = 0; i < last; ++i) {
      g[i] = w[i] * (g[i] - along) * scale;
    }
  }
}

float score_scale(const Head& head) { return 1.0f / std::sqrt(static_cast<float>(head.width)); }

void head_forward(const GemmBackend& gemm, const Head& head, const float* qkv, float* weights,
                  float* out) {
  const int stride = head.qkv_stride;
  for (int first = 0; first < head.length; first += block_length) {
    const int last = std::min(first + block_length, head.length);
    float* rows = weights + std::ptrdiff_t{first} * head.length;
    gemm.multiply({.rows = last - first,
                   .columns = last,
                   .inner = head.width,
                   .a = {qkv + head.query + std::ptrdiff_t{first} * stride, stride},
                   .b = {qkv + head.key, stride, true},
                   .out = {rows, head.length}});
    causal_softmax(first, last, head.length, score_scale(head), weights);
    gemm.multiply(
        {.rows = last - first,
         .columns = head.width,
         .inner = last,
         .a = {rows, head.length},
         .b = {qkv + head.value, stride},
         .out = {out + head.out + std::ptrdiff_t{first} * head.out_stride, head.out_stride}});
  }
}

/// Adds what the queries [first, first + block_length) contribute.
void block_backward(const GemmBackend& gemm, const Head& head, const AttentionGradients& g,
                    const float* weights, int first) {
  const int last = std::min(first + block_length, head.length);
  const int stride = head.qkv_stride;
  const float* rows = weights + std::ptrdiff_t{first} * head.length;
  const float* dout = g.dout + head.out + std::ptrdiff_t{first} * head.out_stride;
  float* dscores = g.scratch + std::ptrdiff_t{first} * head.length;
  gemm.multiply({.rows = last,
                 .columns = head.width,
                 .inner = last - first,
                 .a = {rows, head.length, true},
                 .b = {dout, head.out_stride},
                 .beta = 1.0f,
                 .out = {g.dqkv + head.value, stride}});
  gemm.multiply({.rows = last - first,
                 .columns = last,
                 .inner = head.width,
                 .a = {dout, head.out_stride},
                 .b = {g.qkv + head.value, stride, true},
                 .out = {dscores, head.length}});
  softmax_backward(first, last, head.length, score_scale(head), weights, g.scratch);
  gemm.multiply({.rows = last - first,
                 .columns = head.width,
                 .inner = last,
                 .a = {dscores, head.length},
                 .b = {g.qkv + head.key, stride},
                 .out = {g.dqkv + head.query + std::ptrdiff_t{first} * stride, stride}});
  gemm.multiply({.rows = last,
                 .columns = head.width,
                 .inner = last - first,
                 .a = {dscores, head.length, true},
                 .b = {g.qkv + head.query + std::ptrdiff_t{first} * stride, stride},
                 .beta = 1.0f,
                 .out = {g.dqkv + head.key, stride}});
}

}  // namespace

void attention_forward(const Attention& layer, const float* qkv, float* weights, float* out) {
  for (int sequence = 0; sequence < layer.batch; ++sequence) {
    for (int head = 0; head < layer.heads; ++head) {
      head_forward(layer.gemm, head_of(layer, sequence, head), qkv, weights, out);
      weights += std::ptrdiff_t{layer.length} * layer.length;
    }
  }
}

void attention_backward(const Attention& layer, const AttentionGradients& gradients) {
  const std::size_t count = std::size_t{3} * layer.batch * layer.length * layer.width;
  std::fill_n(gradients.dqkv, count, 0.0f);
  const float* weights = gradients.weights;
  for (int sequence = 0; sequence < layer.batch; ++sequence) {
    for (int head = 0; head < layer.heads; ++head) {
      const Head one = head_of(layer, sequence, head);
      for (int first = 0; first < layer.length; first += block_length) {
        block_backward(layer.gemm, one, gradients, weights, first);
      }
      weights += std::ptrdiff_t{layer.length} * layer.length;
    }
  }
}

}  // namespace sprat::train
