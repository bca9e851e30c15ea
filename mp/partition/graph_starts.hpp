// First partitions of a graph, for the refinement to improve: each seed gives another.
#pragma once

#include <cstdint>
#include <vector>

#include "mp/partition/weighted_graph.hpp"

namespace sprat::mp {

/// Refined over smaller and smaller graphs: heavy edges are contracted until few vertices are left,
/// these are divided, and the result is refined at each size. Directions do not count.
std::vector<int> multilevel_start(const WeightedGraph& graph, const Limits& limits,
                                  std::uint64_t seed);

/// A topological order, cut where few bytes cross near the even shares of both loads, or of the one
/// that there is; directed edges lead to equal or later partitions. The graph has no cycle.
std::vector<int> ordered_start(const WeightedGraph& graph, const Limits& limits,
                               std::uint64_t seed);

}  // namespace sprat::mp
