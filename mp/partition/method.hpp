// The methods by which a model is cut, by name.
#pragma once

#include <string_view>
#include <vector>

#include "mp/partition/model_file.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {

/// SMP's `optimize`.
enum class PartitionGoal { memory, speed };

struct MethodRequest {
  int partitions = 1;
  PartitionGoal goal = PartitionGoal::memory;
  double memory_weight = 0.8;         ///< tree: SMP's default for goal memory; for speed it is 0.2.
  SeatRule seats = SeatRule::capped;  ///< tree
  ChainRequest chain;                 ///< chain: all but its stages
  Contiguity contiguity = Contiguity::ordered;  ///< graph
};

struct PartitionMethod {
  std::string_view name;
  std::string_view summary;  ///< One clause for --help.
  /// The partition of each of pieces_of(model). Throws Error{invalid_argument} for a form of models
  /// that the method does not cut.
  std::vector<int> (*cut)(const PlannedModel& model, const MethodRequest& request);
};

const std::vector<PartitionMethod>& all_partition_methods();
/// Throws Error{invalid_argument} naming those there are.
const PartitionMethod& partition_method_named(std::string_view name);
/// The one that the model's form is made for.
const PartitionMethod& usual_method(const PlannedModel& model);

}  // namespace sprat::mp
