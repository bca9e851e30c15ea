// Layer norm, by rows.
#include <cmath>

#include "comm/base/vector.hpp"
#include "layers/row_sums.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

constexpr float layer_norm_epsilon = 1e-5f;

SPRAT_CLONES void normalise(const LayerNorm& layer, const float* x, float* y, float* mean,
                            float* reciprocal) {
  const int width = layer.shape.width;
  const float* gain = layer.gain.data();
  const float* bias = layer.bias.data();
  const float share = 1.0f / static_cast<float>(width);
  for (int row = 0; row < layer.shape.rows; ++row, x += width, y += width) {
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

SPRAT_CLONES void add_input_gradient(const LayerNormShape& shape, const float* gain,
                                     const LayerNormPass& pass, float* dx) {
  const int width = shape.width;
  const float* x = pass.x;
  const float* dy = pass.dy;
  const float share = 1.0f / static_cast<float>(width);
  for (int row = 0; row < shape.rows; ++row, x += width, dy += width, dx += width) {
    const float center = pass.mean[row], scale = pass.reciprocal[row];
    // A shift or a scaling of x does not change y, so what of dy points along them does not reach
    // x.
    const float along_one = sum(width, [=](int i) { return dy[i] * gain[i]; }) * share;
    const float along_x =
        sum(width, [=](int i) { return dy[i] * gain[i] * ((x[i] - center) * scale); }) * share;
    for (int i = 0; i < width; ++i) {
      const float unit = (x[i] - center) * scale;
      dx[i] += scale * (dy[i] * gain[i] - along_one - unit * along_x);
    }
  }
}

SPRAT_CLONES void add_weight_gradients(const LayerNormShape& shape, const LayerNormPass& pass,
                                       float* dgain, float* dbias) {
  const int width = shape.width;
  const float* x = pass.x;
  const float* dy = pass.dy;
  for (int row = 0; row < shape.rows; ++row, x += width, dy += width) {
    const float center = pass.mean[row], scale = pass.reciprocal[row];
    for (int i = 0; i < width; ++i) {
      dgain[i] += dy[i] * ((x[i] - center) * scale);
      dbias[i] += dy[i];
    }
  }
}

/// Of gain and bias, one behind the other.
RowSums weight_sums(const LayerNormShape& shape) {
  return {.rows = shape.rows,
          .pieces = shape.row_pieces,
          .count = 2 * static_cast<std::size_t>(shape.width)};
}

LayerNormPass rows_from(const LayerNormPass& pass, int first, int width) {
  const std::ptrdiff_t begin = std::ptrdiff_t{first} * width;
  return {.x = pass.x + begin,
          .mean = pass.mean + first,
          .reciprocal = pass.reciprocal + first,
          .dy = pass.dy + begin};
}

/// `operations` for each element; `matrices` are read or written, `vectors` by row or by column.
Cost norm_cost(const LayerNormShape& s, int operations, int matrices, int row_vectors,
               int column_vectors) {
  const auto rows = std::uint64_t(s.rows), width = std::uint64_t(s.width);
  return {.flops = rows * width * std::uint64_t(operations),
          .bytes = sizeof(float) *
                   (rows * width * std::uint64_t(matrices) + rows * std::uint64_t(row_vectors) +
                    width * std::uint64_t(column_vectors))};
}

}  // namespace

void layer_norm_forward(const LayerNorm& layer, const float* x, float* y, float* mean,
                        float* reciprocal) {
  normalise(layer, x, y, mean, reciprocal);
}

void layer_norm_backward_input(const LayerNormShape& shape, std::span<const float> gain,
                               const LayerNormPass& pass, float* dx) {
  add_input_gradient(shape, gain.data(), pass, dx);
}

void layer_norm_backward_weight(const LayerNormShape& shape, const LayerNormPass& pass,
                                std::span<float> gain, std::span<float> bias,
                                std::span<float> workspace) {
  const RowSums sums = weight_sums(shape);
  check_row_sums(sums, workspace);
  if (shape.row_pieces == 1) {
    add_weight_gradients(shape, pass, gain.data(), bias.data());
    return;
  }
  const auto add = [&](int first, int count, std::span<float> into) {
    add_weight_gradients({.rows = count, .width = shape.width}, rows_from(pass, first, shape.width),
                         into.data(), into.data() + shape.width);
  };
  const std::span<const float> both = sum_in_pieces(sums, workspace, add);
  const auto width = static_cast<std::size_t>(shape.width);
  add_onto(both.first(width), gain);
  add_onto(both.subspan(width), bias);
}

std::size_t layer_norm_backward_workspace(const LayerNormShape& shape) noexcept {
  return row_sums_workspace(weight_sums(shape));
}

// Operations as the loops above have them. The backward passes read what they add into.
Cost layer_norm_forward_cost(const LayerNormShape& shape) noexcept {
  return norm_cost(shape, 8, 2, 2, 2);
}
Cost layer_norm_backward_input_cost(const LayerNormShape& shape) noexcept {
  return norm_cost(shape, 14, 4, 2, 1);
}
Cost layer_norm_backward_weight_cost(const LayerNormShape& shape) noexcept {
  return norm_cost(shape, 5, 2, 2, 4);
}

}  // namespace sprat::layers
