// How much of a micro-batch and of the model's widths one tensor rank computes. Pure.
#pragma once

#include <cstddef>

#include "train/model/gpt.hpp"

namespace sprat::train {

struct GptExtents {
  int rows = 0;  ///< Of the micro-batch, which attention, MLP and loss have all of,
  int first_row = 0, own_rows = 0;  ///< and those that the residual stream has here.
  int width = 0;
  // Of the rank's own parts of layers:
  int heads = 0, attention_width = 0, hidden = 0, vocabulary = 0;
};
/// Of a micro-batch of so many rows.
GptExtents extents_of(const GptShape& shape, const GptPlacement& placement, int rows);
/// Of any with at most so many, on any of the tensor ranks.
GptExtents most_extents(const GptShape& shape, const GptPlacement& placement, int rows);

// Elements of memory, for micro-batches of at most so many rows:
/// for what tensor ranks exchange in a pass,
std::size_t exchange_workspace(const GptShape& shape, const GptPlacement& placement, int rows);
/// for a sum over rows in so many pieces, of a norm or of positions,
std::size_t row_sums_workspace(const GptShape& shape, const GptPlacement& placement, int rows,
                               int pieces);
/// and for sums over own rows on their way to becoming those of all.
std::size_t partial_gradients_workspace(const GptShape& shape, const GptPlacement& placement);

}  // namespace sprat::train
