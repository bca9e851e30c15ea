// The gradient norm, summed in an order that does not depend on how many ranks share the model.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sprat::fsdp {

/// sums[k] <- the sum of squares, in f64, of block k of `values`; values.size() is sums.size()
/// blocks.
void block_sums_of_squares(std::span<const float> values, std::span<double> sums);

/// Cuts units into runs that follow each other and whose `blocks` together are at most `most`, or
/// which are one unit: where each run ends.
std::vector<std::size_t> norm_windows(std::span<const std::size_t> blocks, std::size_t most);

/// By unit, the sum of its blocks of every shard, in block order. `gathered` holds, shard after
/// shard, each unit's blocks of that shard; `blocks` says how many those are, by unit. Padding adds
/// zeros.
std::vector<double> sums_in_block_order(std::span<const double> gathered,
                                        std::span<const std::size_t> blocks, int shards);

/// What a gradient of this norm is multiplied by so that it does not exceed `limit`; 0: no limit.
double clip_factor(double norm, float limit);

}  // namespace sprat::fsdp
