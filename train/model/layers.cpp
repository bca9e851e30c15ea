// The layers, as plain loops that the compiler vectorises.
#include "train/model/layers.hpp"

#include <algorithm>
#include <cmath>

#include "comm/base/vector.hpp"

namespace sprat::train {
namespace {

constexpr float layer_norm_epsilon = 1e-5f;
constexpr float gelu_scale = 0.797884561f;  // sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715f;

SPRAT_CLONES void add_columns(int rows, int width, const float* x, float* sums) {
  for (int row = 0; row < rows; ++row) {
    const float* one = x + static_cast<std::int64_t>(row) * width;
    for (int i = 0; i < width; ++i) {
      sums[i] += one[i];
    }
  }
}

SPRAT_CLONES void normalise(const LayerNorm& layer, const float* x, float* y, float* mean,
                            float* reciprocal) {
  const int width = layer.width;
  const float* gain = layer.gain.data();
  const float* bias = layer.bias.data();
  const float share = 1.0f / static_cast<float>(width);
  for (int row = 0; row < layer.rows; ++row, x += width, y += width) {
    const float center = sum(width, [=](int i) { return x[i]; }) * share;
    // From the deviations: the mean of the squares less the square of the mean would cancel where
    // the mean is large beside the spread.
    const float variance =
        sum(width, [=](int i) { return (x[i] - center) * (x[i] - center); }) * share;
    const float scale = 1.0f / std::sqrt(variance + layer_norm_epsilon);
    for (int i = 0; i < width; ++i) {
      y[i] = (x[i] - center) * scale * gain[i] + bias[i];
    }
    mean[row] = center;
    reciprocal[row] = scale;
  }
}

SPRAT_CLONES void normalise_backward(const LayerNorm& layer, const LayerNormGradients& g) {
  const int width = layer.width;
  const float* gain = layer.gain.data();
  const float* x = g.x;
  const float* dy = g.dy;
  float* dx = g.dx;
  float* dgain = g.gain.data();
  float* dbias = g.bias.data();
  const float share = 1.0f / static_cast<float>(width);
  for (int row = 0; row < layer.rows; ++row, x += width, dy += width, dx += width) {
    const float center = g.mean[row], scale = g.reciprocal[row];
    // A shift or a scaling of x does not change y, so what of dy points along them does not reach
    // x.
    const float along_one = sum(width, [=](int i) { return dy[i] * gain[i]; }) * share;
    const float along_x =
        sum(width, [=](int i) { return dy[i] * gain[i] * ((x[i] - center) * scale); }) * share;
    for (int i = 0; i < width; ++i) {
      const float unit = (x[i] - center) * scale;
      dgain[i] += dy[i] * unit;
      dbias[i] += dy[i];
      dx[i] += scale * (dy[i] * gain[i] - along_one - unit * along_x);
    }
  }
}

// GELU by its tanh form, as GPT-2 has it. (1 + tanh(u)) / 2 is the logistic function of 2u, which
// takes one exponential.
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

/// Softmax of one row in place; returns the logarithm of the row's sum of exponentials.
SPRAT_INLINE double softmax(int width, float* x) {
  // Less the highest no exponential overflows, and the shares stay the same.
  const float highest = maximum(width, x);
  for (int i = 0; i < width; ++i) {
    x[i] = fast_exp(x[i] - highest);
  }
  const float total = sum(width, [=](int i) { return x[i]; });
  const float share = 1.0f / total;
  for (int i = 0; i < width; ++i) {
    x[i] *= share;
  }
  return std::log(double{total}) + double{highest};
}

SPRAT_CLONES double softmax_losses(int rows, int width, const std::uint8_t* targets, float scale,
                                   float* logits) {
  double total = 0;
  for (int row = 0; row < rows; ++row, logits += width) {
    // Read before softmax() overwrites the row. The row then becomes the gradient: the shares, less
    // 1 at the target.
    const double chosen = double{logits[targets[row]]};
    total += softmax(width, logits) - chosen;
    logits[targets[row]] -= 1.0f;
    for (int i = 0; i < width; ++i) {
      logits[i] *= scale;
    }
  }
  return total;
}

void multiply_onto(const Linear& layer, const float* x, float* y) {
  layer.gemm.multiply({.rows = layer.rows,
                       .columns = layer.outputs,
                       .inner = layer.inputs,
                       .a = {x, layer.inputs},
                       .b = {layer.weight.data(), layer.inputs, true},
                       .beta = 1.0f,
                       .out = {y, layer.outputs}});
}

}  // namespace

void linear_forward(const Linear& layer, const float* x, float* y) {
  // The product is added onto the bias, which saves a pass over the output.
  for (int row = 0; row < layer.rows; ++row) {
    std::copy(layer.bias.begin(), layer.bias.end(), y + std::int64_t{row} * layer.outputs);
  }
  multiply_onto(layer, x, y);
}

void linear_forward_onto(const Linear& layer, const float* residual, const float* x, float* y) {
  for (int row = 0; row < layer.rows; ++row) {
    const std::int64_t begin = std::int64_t{row} * layer.outputs;
    for (int i = 0; i < layer.outputs; ++i) {
      y[begin + i] = residual[begin + i] + layer.bias[i];
    }
  }
  multiply_onto(layer, x, y);
}

void linear_backward(const Linear& layer, const LinearGradients& gradients) {
  // The gradient of the input is this pass's alone and is overwritten; those of weight and bias add
  // up over micro-steps.
  layer.gemm.multiply({.rows = layer.rows,
                       .columns = layer.inputs,
                       .inner = layer.outputs,
                       .a = {gradients.dy, layer.outputs},
                       .b = {layer.weight.data(), layer.inputs},
                       .out = {gradients.dx, layer.inputs}});
  layer.gemm.multiply({.rows = layer.outputs,
                       .columns = layer.inputs,
                       .inner = layer.rows,
                       .a = {gradients.dy, layer.outputs, true},
                       .b = {gradients.x, layer.inputs},
                       .beta = 1.0f,
                       .out = {gradients.weight.data(), layer.inputs}});
  add_columns(layer.rows, layer.outputs, gradients.dy, gradients.bias.data());
}

void layer_norm_forward(const LayerNorm& layer, const float* x, float* y, float* mean,
                        float* reciprocal) {
  normalise(layer, x, y, mean, reciprocal);
}

void layer_norm_backward(const LayerNorm& layer, const LayerNormGradients& gradients) {
  normalise_backward(layer, gradients);
}

void gelu_forward(std::span<const float> x, float* y) { gelu(x.size(), x.data(), y); }

void gelu_backward(std::span<const float> x, float* dy) { gelu_slope(x.size(), x.data(), dy); }

void embedding_forward(const Embedding& layer, std::span<const float> token,
                       std::span<const float> position, float* x) {
  for (std::size_t row = 0; row < layer.tokens.size(); ++row, x += layer.width) {
    const float* what = token.data() + std::size_t{layer.tokens[row]} * layer.width;
    const float* where = position.data() + row % layer.length * layer.width;
    for (int i = 0; i < layer.width; ++i) {
      x[i] = what[i] + where[i];
    }
  }
}

void embedding_backward(const Embedding& layer, const float* dx, std::span<float> token,
                        std::span<float> position) {
  for (std::size_t row = 0; row < layer.tokens.size(); ++row, dx += layer.width) {
    float* what = token.data() + std::size_t{layer.tokens[row]} * layer.width;
    float* where = position.data() + row % layer.length * layer.width;
    for (int i = 0; i < layer.width; ++i) {
      what[i] += dx[i];
      where[i] += dx[i];
    }
  }
}

double cross_entropy(std::span<float> logits, std::span<const std::uint8_t> targets, float scale) {
  if (targets.empty()) {
    return 0;
  }
  const int width = static_cast<int>(logits.size() / targets.size());
  return softmax_losses(static_cast<int>(targets.size()), width, targets.data(), scale,
                        logits.data());
}

}  // namespace sprat::train
