// Which strategy a shard degree stands for, and what a rank keeps under it.
#pragma once

#include <cstddef>
#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// Degrees that divide `ranks`, ascending.
std::vector<int> allowed_degrees(int ranks);

/// The row for `degree` ranks sharing a copy of the model among `ranks`.
/// Throws Error{invalid_argument} with the allowed degrees if it does not divide.
const Strategy& strategy_for(int ranks, int degree);

/// Bytes a rank keeps between steps, f32 throughout.
struct KeptBytes {
  std::size_t parameters = 0, gradients = 0, optimizer = 0;
  std::size_t total() const { return parameters + gradients + optimizer; }
};
/// Of `elements` (padded) elements on a mesh of `replicas` by `shards`; AdamW keeps two moments.
KeptBytes kept_bytes(const Strategy& strategy, std::size_t elements, int replicas, int shards);

}  // namespace sprat::fsdp
