// Operations and the data between them, cut where the fewest bytes cross, under two balances.
// Cost: each start O(edges log vertices) a pass of refinement. Use: for graphs of operations, as
// SMP had them of TensorFlow. Paper: Karypis and Kumar, multilevel k-way partitioning, 1998.
#pragma once

#include <string>
#include <vector>

#include "sprat/partition.hpp"

namespace sprat::mp {

struct Operation {
  ModelPiece piece;
  /// Operations of equal group stay together, as those of one variable or one Keras layer do;
  /// empty: alone. Those that share a parameter stay together too.
  std::string group;
};

/// What one operation makes and another takes, by index. Of an output that several take, each has
/// an edge.
struct DataEdge {
  int from = 0, to = 0;
  double bytes = 0;
};

struct OperationGraph {
  std::vector<Operation> operations;
  std::vector<DataEdge> edges;
};

enum class Contiguity {
  ordered,  ///< Data go to later partitions only: the partitions' graph has no cycle.
  free,     ///< A micro-batch may visit a partition several times.
};

struct GraphRequest {
  int partitions = 1;
  Contiguity contiguity = Contiguity::ordered;
  /// How much more than its even share a partition may have of time, and of parameters and
  /// activations: 1.05 is 5 % more.
  double time_tolerance = 1.05;
  double memory_tolerance = 1.05;
  int starts = 16;  ///< Tries from different beginnings; the best is kept.
};

struct GraphCut {
  std::vector<int> partition_of;  ///< By operation.
  double cut_bytes = 0;
  /// The largest partition's share over the even share, of time and of memory. Above the tolerance
  /// where nothing better was found: operations are not divided.
  double time_balance = 1, memory_balance = 1;
};

/// Deterministic: equal input gives an equal cut. Each partition has an operation at least. Throws
/// Error{invalid_argument} for edges that lead nowhere, and if fewer groups than partitions can be
/// apart.
GraphCut cut_graph(const OperationGraph& graph, const GraphRequest& request);

}  // namespace sprat::mp
