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

/// Which row of its sequence a row is.
int row_in_sequence(const PositionShape& shape, int row) {
  return static_cast<int>((std::int64_t{shape.first_row} + row) % shape.length);
}

/// Of a row of a sequence.
int position_of(const PositionShape& shape, int row) {
  return shape.first + row + (row < shape.length / 2 ? 0 : shape.left_out);
}

/// Where in the table that is.
std::ptrdiff_t place_of(const PositionShape& shape, int row) {
  return std::ptrdiff_t{position_of(shape, row)} * shape.width;
}

/// How many rows a sequence has up to the last one that is here.
int sequence_rows(const PositionShape& shape) {
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
  require(shape.left_out >= 0, "positions left out are ", shape.left_out, "; none is 0");
  const int rows = sequence_rows(shape);
  const int end = rows == 0 ? shape.first : position_of(shape, rows - 1) + 1;
  require(shape.first >= 0 && std::size_t(end) * std::size_t(shape.width) <= table, "positions ",
          shape.first, " to below ", end, " of width ", shape.width, " are not in a table of ",
          table, " elements; take shorter sequences or a larger table");
}

/// Adds sums by row of a sequence to their positions.
void add_rows(const PositionShape& shape, std::span<const float> sums, float* table) {
  for (int row = 0; row < sequence_rows(shape); ++row) {
    add_row(shape.width, sums.data() + std::ptrdiff_t{row} * shape.width,
            table + place_of(shape, row));
  }
}

RowSums sums_of(const PositionShape& shape) {
  return {.rows = shape.rows,
          .pieces = shape.row_pieces,
          .count = std::size_t(sequence_rows(shape)) * std::size_t(shape.width)};
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
  for (int row = 0; row < shape.rows; ++row, x += shape.width) {
    add_row(shape.width, table.data() + place_of(shape, row_in_sequence(shape, row)), x);
  }
}

void position_backward_weight(const PositionShape& shape, const float* dx, std::span<float> table,
                              std::span<float> workspace) {
  check_positions(shape, table.size());
  const RowSums sums = sums_of(shape);
  check_row_sums(sums, workspace);
  if (shape.row_pieces == 1) {
    for (int row = 0; row < shape.rows; ++row, dx += shape.width) {
      add_row(shape.width, dx, table.data() + place_of(shape, row_in_sequence(shape, row)));
    }
    return;
  }
  // By row of a sequence, so that a piece takes no memory for positions that others have.
  const auto add = [&](int first, int count, std::span<float> into) {
    for (int row = first; row < first + count; ++row) {
      add_row(shape.width, dx + std::ptrdiff_t{row} * shape.width,
              into.data() + std::ptrdiff_t{row_in_sequence(shape, row)} * shape.width);
    }
  };
  add_rows(shape, sum_in_pieces(sums, workspace, add), table.data());
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
