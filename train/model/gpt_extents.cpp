#include "train/model/gpt_extents.hpp"

#include <algorithm>

namespace sprat::train {

GptExtents extents_of(const GptShape& shape, const GptPlacement& placement, int rows) {
  const int degree = placement.tensor.degree, rank = placement.tensor_rank;
  const tensor::Part own = placement.tensor.sequence_parallel ? tensor::part_of(rows, degree, rank)
                                                              : tensor::Part{0, rows};
  const auto part = [&](int extent) { return tensor::part_of(extent, degree, rank).count; };
  return {.rows = rows,
          .first_row = own.first,
          .own_rows = own.count,
          .width = shape.width,
          .heads = part(shape.heads),
          .attention_width = part(shape.width),
          .hidden = part(shape.hidden()),
          .vocabulary = part(shape.vocabulary)};
}

GptExtents most_extents(const GptShape& shape, const GptPlacement& placement, int rows) {
  GptExtents most = extents_of(shape, placement, rows);
  // Of more rows a rank may have fewer of its own, by one: what need not divide is rounded up.
  const int degree = placement.tensor.degree;
  most.own_rows = placement.tensor.sequence_parallel ? (rows + degree - 1) / degree : rows;
  most.vocabulary = (shape.vocabulary + degree - 1) / degree;
  return most;
}

std::size_t exchange_workspace(const GptShape& shape, const GptPlacement& placement, int rows) {
  const tensor::Parallelism& how = placement.tensor;
  const auto count = static_cast<std::size_t>(rows);
  return std::max({tensor::column_workspace(how, {.rows = rows, .inputs = shape.width}),
                   tensor::row_workspace(how, {.rows = rows, .outputs = shape.width}),
                   tensor::embedding_workspace(
                       how, {.vocabulary = shape.vocabulary, .width = shape.width}, count),
                   tensor::cross_entropy_workspace(how, count)});
}

std::size_t row_sums_workspace(const GptShape& shape, const GptPlacement& placement, int rows,
                               int pieces) {
  const GptExtents most = most_extents(shape, placement, rows);
  const std::size_t norm = layers::layer_norm_backward_workspace(
      {.rows = most.own_rows, .width = shape.width, .row_pieces = pieces});
  // Rows that begin anywhere in a sequence may reach all positions that are here.
  const int length = placement.own_positions(shape);
  const std::size_t positions = layers::position_backward_workspace(
      {.rows = length, .length = length, .width = shape.width, .row_pieces = pieces});
  return std::max(norm, positions);
}

// A block has two norms with two gradients each; the embedding has positions.
std::size_t partial_gradients_workspace(const GptShape& shape, const GptPlacement& placement) {
  const bool dealt = placement.tensor.sequence_parallel && placement.tensor.degree > 1;
  constexpr int norms = 2, gradients = 2;
  const int rows = std::max(norms * gradients, shape.context);
  return dealt ? static_cast<std::size_t>(rows) * static_cast<std::size_t>(shape.width) : 0;
}

}  // namespace sprat::train
