// Biases, by rows.
#include "comm/base/vector.hpp"
#include "layers/row_sums.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

SPRAT_CLONES void add_bias(int rows, int width, const float* bias, const float* residual,
                           float* y) {
  for (int row = 0; row < rows; ++row, y += width, residual += width) {
    for (int i = 0; i < width; ++i) {
      y[i] += residual[i] + bias[i];
    }
  }
}

SPRAT_CLONES void add_columns(int rows, int width, const float* x, float* sums) {
  for (int row = 0; row < rows; ++row, x += width) {
    for (int i = 0; i < width; ++i) {
      sums[i] += x[i];
    }
  }
}

RowSums bias_sums(const BiasShape& shape) {
  return {.rows = shape.rows,
          .pieces = shape.row_pieces,
          .count = static_cast<std::size_t>(shape.width)};
}

}  // namespace

void bias_forward_onto(const BiasShape& shape, std::span<const float> bias, const float* residual,
                       float* y) {
  add_bias(shape.rows, shape.width, bias.data(), residual, y);
}

void bias_backward_weight(const BiasShape& shape, const float* dy, std::span<float> bias,
                          std::span<float> workspace) {
  const RowSums sums = bias_sums(shape);
  check_row_sums(sums, workspace);
  if (shape.row_pieces == 1) {
    add_columns(shape.rows, shape.width, dy, bias.data());
    return;
  }
  const auto add = [&](int first, int count, std::span<float> into) {
    add_columns(count, shape.width, dy + std::ptrdiff_t{first} * shape.width, into.data());
  };
  add_onto(sum_in_pieces(sums, workspace, add), bias);
}

std::size_t bias_backward_workspace(const BiasShape& shape) noexcept {
  return row_sums_workspace(bias_sums(shape));
}

Cost bias_forward_onto_cost(const BiasShape& shape) noexcept {
  const std::uint64_t elements = std::uint64_t(shape.rows) * std::uint64_t(shape.width);
  return {.flops = 2 * elements,
          .bytes = sizeof(float) * (3 * elements + std::uint64_t(shape.width))};
}
Cost bias_backward_weight_cost(const BiasShape& shape) noexcept {
  const std::uint64_t elements = std::uint64_t(shape.rows) * std::uint64_t(shape.width);
  return {.flops = elements, .bytes = sizeof(float) * (elements + 2 * std::uint64_t(shape.width))};
}

}  // namespace sprat::layers
