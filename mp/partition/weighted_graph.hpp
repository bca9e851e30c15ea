// A graph whose vertices carry two loads, as the refinement of cuts sees it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace sprat::mp {

/// What is balanced at once: compute and memory.
using Loads = std::array<double, 2>;

/// One end's view of an edge.
struct Arc {
  int to = 0;
  double weight = 0;
  int direction = 0;  ///< 1: data go to `to`; -1: they come from there; 0: it does not matter.
};

struct WeightedGraph {
  std::vector<Loads> loads;            ///< By vertex.
  std::vector<std::vector<Arc>> arcs;  ///< By vertex; one at most to each other vertex.

  int vertices() const noexcept { return static_cast<int>(loads.size()); }
};

/// The graph whose vertices are the groups that `group_of` names, 0 to groups - 1. Edges inside of
/// a group vanish, those between two groups become one; with opposite directions, one of none.
WeightedGraph contracted(const WeightedGraph& graph, std::span<const int> group_of, int groups);

/// What each partition may carry at most.
struct Limits {
  std::vector<Loads> most;  ///< By partition.

  int partitions() const noexcept { return static_cast<int>(most.size()); }
};

/// How good a partition is: less overload is better, at equality less cut.
struct CutQuality {
  double overload = 0;  ///< Of all partitions and loads, what exceeds the limit, relative to it.
  double cut = 0;       ///< Weight of the edges between partitions.

  friend auto operator<=>(const CutQuality&, const CutQuality&) = default;
};
CutQuality quality_of(const WeightedGraph& graph, std::span<const int> partition_of,
                      const Limits& limits);

/// Moves vertices between partitions while that makes the cut better, as Fiduccia and Mattheyses
/// (1982) do between two: each vertex at most once in a pass, the best first, even where it gets
/// worse for a while; then back to the best that was seen. A move keeps directed edges within their
/// partition or leading to a later one.
void refine(const WeightedGraph& graph, const Limits& limits, std::vector<int>& partition_of);

/// Gives each partition a vertex: for each one without, another loses the vertex that costs least
/// and that may come before or behind the rest of it. Directed edges lead to equal or later
/// partitions as before; these may get other numbers, so all have the same limits. There are as
/// many vertices as partitions, and no cycle.
void fill_empty(const WeightedGraph& graph, const Limits& limits, std::vector<int>& partition_of);

}  // namespace sprat::mp
