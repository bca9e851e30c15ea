// An order of shards in which neighbours lie on different targets, so that a window of reads keeps
// many targets busy. Pure: decided from the order and the layouts, never from timing, so that all
// ranks find the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "io/reading/request.hpp"

namespace sprat::io {

/// How many of a shard's bytes each target has; targets ascend.
struct ShardTargets {
  std::vector<std::pair<Target, std::uint64_t>> bytes;
};
ShardTargets targets_of(const FileLayout& layout);

struct SpreadOptions {
  std::size_t window = 8;       ///< Shards that are read at the same time.
  std::size_t look_ahead = 64;  ///< How far a shard may come forward.
};

/// `order` (indices of `shards`) so rearranged that every window of shards puts as few bytes on one
/// target as a greedy choice finds. No shard comes later than look_ahead behind its place, so a
/// shuffle stays one. Cost: order.size() * look_ahead * targets of a shard.
std::vector<std::uint32_t> spread_over_targets(std::span<const std::uint32_t> order,
                                               std::span<const ShardTargets> shards,
                                               const SpreadOptions& options);

/// Where host `host` of `hosts` begins in a plan that all hosts go through, so that they do not
/// all begin on one target.
std::size_t first_of_host(std::size_t plan, int host, int hosts);

}  // namespace sprat::io
