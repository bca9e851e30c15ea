// Tables of tokens and of positions: rows are looked up, and their gradients added row by row.
#include <algorithm>
#include <cstddef>

#include "comm/base/check.hpp"
#include "layers/row_sums.hpp"
#include "layers/vocabulary.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

/// The tokens that a table of so many elements has.
TokenRange checked_tokens(const EmbeddingShape& shape, std::span<const std::int32_t> tokens,
                          std::size_t table) {
  const TokenRange held = held_tokens(shape.vocabulary, shape.part);
  check_tokens("token", shape.vocabulary, tokens);
  require(std::size_t(held.count) * std::size_t(shape.width) <= table, held.count,
          " tokens of width ", shape.width, " are not in a table of ", table,
          " elements; give all of their rows");
  return held;
}

void add_row(int width, const float* from, float* to) {
  for (int i = 0; i < width; ++i) {
    to[i] += from[i];
  }
}

/// Of a row, where its position is behind that of a sequence's first.
std::ptrdiff_t place_of(const PositionShape& shape, int row) {
  const std::int64_t of_batch = std::int64_t{shape.first_row} + row;
  return static_cast<std::ptrdiff_t>(of_batch % shape.length) * shape.width;
}

/// How many positions there are up to the last one that a row has.
int position_count(const PositionShape& shape) {
  if (shape.rows == 0 || shape.length == 0) {
    return 0;
  }
  const int begin = shape.first_row % shape.length;
  return begin + std::min(shape.rows, shape.length - begin);
}

void check_positions(const PositionShape& shape, std::size_t table) {
  require(shape.length > 0 || shape.rows == 0, shape.rows, " rows are in sequences of ",
          shape.length, " rows; say how long a sequence is");
  require(shape.first_row >= 0, "the first row of a part is ", shape.first_row,
          "; rows are counted from 0");
  const int end = shape.first + position_count(shape);
  require(shape.first >= 0 && std::size_t(end) * std::size_t(shape.width) <= table, "positions ",
          shape.first, " to below ", end, " of width ", shape.width, " are not in a table of ",
          table, " elements; take shorter sequences or a larger table");
}

void add_positions(const PositionShape& shape, const float* dx, float* positions) {
  for (int row = 0; row < shape.rows; ++row, dx += shape.width) {
    add_row(shape.width, dx, positions + place_of(shape, row));
  }
}

RowSums sums_of(const PositionShape& shape) {
  return {.rows = shape.rows,
          .pieces = shape.row_pieces,
          .count = std::size_t(position_count(shape)) * std::size_t(shape.width)};
}

}  // namespace

void embedding_forward(const EmbeddingShape& shape, std::span<const std::int32_t> tokens,
                       std::span<const float> table, float* x) {
  const TokenRange held = checked_tokens(shape, tokens, table.size());
  for (const std::int32_t token : tokens) {
    if (contains(held, token)) {
      const auto row = std::ptrdiff_t{token - held.first};
      x = std::copy_n(table.data() + row * shape.width, shape.width, x);
    } else {
      x = std::fill_n(x, shape.width, 0.0f);
    }
  }
}

void embedding_backward_weight(const EmbeddingShape& shape, std::span<const std::int32_t> tokens,
                               const float* dx, std::span<float> table) {
  const TokenRange held = checked_tokens(shape, tokens, table.size());
  // In the order of rows, so that a token that stands in several has one sum.
  for (const std::int32_t token : tokens) {
    if (contains(held, token)) {
      add_row(shape.width, dx, table.data() + std::ptrdiff_t{token - held.first} * shape.width);
    }
    dx += shape.width;
  }
}

void position_forward(const PositionShape& shape, std::span<const float> table, float* x) {
  check_positions(shape, table.size());
  const float* const positions = table.data() + std::ptrdiff_t{shape.first} * shape.width;
  for (int row = 0; row < shape.rows; ++row, x += shape.width) {
    add_row(shape.width, positions + place_of(shape, row), x);
  }
}

void position_backward_weight(const PositionShape& shape, const float* dx, std::span<float> table,
                              std::span<float> workspace) {
  check_positions(shape, table.size());
  const RowSums sums = sums_of(shape);
  check_row_sums(sums, workspace);
  const auto positions = table.subspan(std::size_t(shape.first) * std::size_t(shape.width));
  if (shape.row_pieces == 1) {
    add_positions(shape, dx, positions.data());
    return;
  }
  const auto add = [&](int first, int count, std::span<float> into) {
    PositionShape piece = shape;
    piece.rows = count;
    piece.first_row += first;
    add_positions(piece, dx + std::ptrdiff_t{first} * shape.width, into.data());
  };
  add_onto(sum_in_pieces(sums, workspace, add), positions);
}

std::size_t position_backward_workspace(const PositionShape& shape) noexcept {
  return row_sums_workspace(sums_of(shape));
}

Cost embedding_forward_cost(const EmbeddingShape& shape, std::size_t rows) noexcept {
  const std::uint64_t elements = rows * std::uint64_t(shape.width);
  return {.flops = 0, .bytes = rows * sizeof(std::int32_t) + 2 * sizeof(float) * elements};
}
// What is added into is read as well as written.
Cost embedding_backward_weight_cost(const EmbeddingShape& shape, std::size_t rows) noexcept {
  const std::uint64_t elements = rows * std::uint64_t(shape.width);
  return {.flops = elements, .bytes = rows * sizeof(std::int32_t) + 3 * sizeof(float) * elements};
}
Cost position_cost(const PositionShape& shape) noexcept {
  const std::uint64_t elements = std::uint64_t(shape.rows) * std::uint64_t(shape.width);
  return {.flops = elements, .bytes = 3 * sizeof(float) * elements};
}

}  // namespace sprat::layers
