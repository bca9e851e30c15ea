// SMP's automatic partition: a tree of modules over partitions, from the root down.
// Cost: O(p n^2) for a module of n children.
// Use: for models that are no chain of layers. Paper: Karakus et al., Amazon SageMaker Model
// Parallelism, 2021.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sprat/partition.hpp"

namespace sprat::mp {

/// A module and those inside of it, in the order they are executed.
struct Module {
  ModelPiece own;
  std::vector<Module> children;
};

/// How D'Hondt's method gives partitions to segments of modules.
enum class SeatRule {
  plain,   ///< By cost alone: a big module without children may win partitions it cannot use.
  capped,  ///< None gets more than it has modules to put there, so no partition stays empty.
};

struct TreeRequest {
  int partitions = 1;
  /// The share of memory in a module's cost, 0 to 1; the rest is time. Both count relative to the
  /// whole model.
  double memory_weight = 0.8;
  SeatRule seats = SeatRule::capped;
};

/// The tree's pieces in execution order: a module before its children.
std::vector<const ModelPiece*> pieces_of(const Module& root);

/// The partition of each of pieces_of(root). Modules that share a parameter are on one partition;
/// so is a module that has no parameters with the one around it. Partitions follow the order of
/// execution, and the root is on partition 0. Throws Error{invalid_argument} for a model with fewer
/// modules to place than partitions.
std::vector<int> cut_tree(const Module& root, const TreeRequest& request);

/// D'Hondt's method: seats go one by one to the largest votes / (seats won + 1), at equality to the
/// first. Nobody gets more than `most[i]` seats; those that nobody may have are not given.
std::vector<int> d_hondt(std::span<const double> votes, std::span<const int> most, int seats);

/// Where the segments begin if costs, at least one each, are cut in `segments` with the least
/// largest sum; among those the cut with the least sum of squares.
std::vector<std::size_t> cut_in_segments(std::span<const double> costs, int segments);

}  // namespace sprat::mp
