// Gradients that are sums over rows, added up in pieces of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "layers/pieces.hpp"

namespace sprat::layers {

struct RowSums {
  int rows = 0, pieces = 1;
  std::size_t count = 0;  ///< Elements of the gradient.
};

/// Elements of the workspace that sum_in_pieces() takes; none of one piece, which needs no sum of
/// its own.
std::size_t row_sums_workspace(const RowSums& sums) noexcept;
/// Throws Error{invalid_argument} if there are no pieces, or the workspace is smaller than that.
void check_row_sums(const RowSums& sums, std::span<const float> workspace);

void add_onto(std::span<const float> values, std::span<float> sums);

/// add(first, count, into) adds rows [first, first + count) to `into`, which starts from zero for
/// each piece. The result lies in the workspace.
template <class Add>
std::span<const float> sum_in_pieces(const RowSums& sums, std::span<float> workspace,
                                     const Add& add) {
  const auto sum = [&](int at) {
    return workspace.subspan(static_cast<std::size_t>(at) * sums.count, sums.count);
  };
  int made = 0;
  for (int piece = 0; piece < sums.pieces; ++piece) {
    const int first = piece_begin(sums.rows, sums.pieces, piece);
    const int last = piece_begin(sums.rows, sums.pieces, piece + 1);
    std::ranges::fill(sum(made), 0.0f);
    add(first, last - first, sum(made));
    ++made;
    for (int joins = joins_after(piece, sums.pieces); joins > 0; --joins) {
      --made;
      add_onto(sum(made), sum(made - 1));
    }
  }
  return sum(0);
}

}  // namespace sprat::layers
