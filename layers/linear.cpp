// Linear layers, by matrix products.
#include <algorithm>
#include <cstddef>

#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

void multiply_rows(const Linear& layer, const float* x, float* y, float beta) {
  const LinearShape& s = layer.shape;
  layer.gemm.multiply({.rows = s.rows,
                       .columns = s.outputs,
                       .inner = s.inputs,
                       .a = {x, s.inputs},
                       .b = {layer.weight.data(), s.inputs, true},
                       .beta = beta,
                       .out = {y, s.outputs},
                       .inner_parts = s.input_parts});
}

/// Of a product of three matrices' shapes, with `more` operations and elements beside it.
Cost product_cost(const LinearShape& s, std::uint64_t more) {
  const auto rows = std::uint64_t(s.rows), inputs = std::uint64_t(s.inputs),
             outputs = std::uint64_t(s.outputs);
  return {.flops = 2 * rows * inputs * outputs + more,
          .bytes = sizeof(float) * (rows * inputs + rows * outputs + inputs * outputs)};
}

}  // namespace

void linear_forward(const Linear& layer, const float* x, float* y) {
  // The product is added onto the bias, which saves a pass over the output.
  for (int row = 0; row < layer.shape.rows && !layer.bias.empty(); ++row) {
    std::copy(layer.bias.begin(), layer.bias.end(), y + std::ptrdiff_t{row} * layer.shape.outputs);
  }
  multiply_rows(layer, x, y, layer.bias.empty() ? 0.0f : 1.0f);
}

void linear_forward_onto(const Linear& layer, const float* residual, const float* x, float* y) {
  const int outputs = layer.shape.outputs;
  for (int row = 0; row < layer.shape.rows; ++row) {
    const std::ptrdiff_t begin = std::ptrdiff_t{row} * outputs;
    for (int i = 0; i < outputs; ++i) {
      y[begin + i] = layer.bias.empty() ? residual[begin + i] : residual[begin + i] + layer.bias[i];
    }
  }
  multiply_rows(layer, x, y, 1.0f);
}

void linear_backward_input(const Linear& layer, const float* dy, float* dx) {
  const LinearShape& s = layer.shape;
  layer.gemm.multiply({.rows = s.rows,
                       .columns = s.inputs,
                       .inner = s.outputs,
                       .a = {dy, s.outputs},
                       .b = {layer.weight.data(), s.inputs},
                       .out = {dx, s.inputs},
                       .inner_parts = s.output_parts,
                       .inner_groups = s.output_groups});
}

void linear_backward_weight(const GemmBackend& gemm, const LinearShape& shape,
                            const LinearGradients& gradients) {
  gemm.multiply({.rows = shape.outputs,
                 .columns = shape.inputs,
                 .inner = shape.rows,
                 .a = {gradients.dy, shape.outputs, true},
                 .b = {gradients.x, shape.inputs},
                 .beta = 1.0f,
                 .out = {gradients.weight.data(), shape.inputs}});
  if (!gradients.bias.empty()) {
    bias_backward_weight({.rows = shape.rows, .width = shape.outputs}, gradients.dy,
                         gradients.bias);
  }
}

// With a bias: one addition for each element of the output, or of its gradient.
Cost linear_forward_cost(const LinearShape& shape) noexcept {
  return product_cost(shape, std::uint64_t(shape.rows) * std::uint64_t(shape.outputs));
}
Cost linear_backward_input_cost(const LinearShape& shape) noexcept {
  return product_cost(shape, 0);
}
Cost linear_backward_weight_cost(const LinearShape& shape) noexcept {
  return product_cost(shape, std::uint64_t(shape.rows) * std::uint64_t(shape.outputs));
}

}  // namespace sprat::layers
