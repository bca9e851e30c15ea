// Micro-batches of tensor ranks that each read samples of their own.
#pragma once

#include <vector>

#include "sprat/tensor.hpp"
#include "train/data/batches.hpp"

namespace sprat::train {

/// Whole micro-batches, the same on every rank of the group, of which each has read the part that
/// `share` says; samples are of `context` tokens, and stay in order. Collective over the group
/// where each has read a part; where each has read all they are `own`.
std::vector<Batch> gather_batches(tensor::Group& group, const BatchShare& share, int context,
                                  std::vector<Batch> own);

}  // namespace sprat::train
