// What `sprat bench` goes through: calls, types, operations and sizes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cli/bench/measure.hpp"
#include "cli/bench/task.hpp"
#include "collectives/plan/planner.hpp"

namespace sprat::cli {

/// What is to be run: the cross product of these, in this order.
struct Sweep {
  std::vector<BenchCall> calls;
  std::vector<DType> dtypes;
  std::vector<ReduceOp> ops;
  std::vector<std::size_t> sizes;  ///< Bytes.
  Buffers::Kind memory = Buffers::Kind::private_memory;
  bool in_place = false, check = true;
  Effort effort;

  /// The operations that take the type; one, of no meaning, where nothing is reduced.
  std::vector<ReduceOp> ops_for(const BenchCall& call, DType dtype) const;
  std::size_t rows() const;
};

/// What a planner sees of a task; none for messages.
std::optional<collectives::Problem> problem_of(
    const Task& task, std::shared_ptr<const collectives::Grouping> grouping, int rank);

}  // namespace sprat::cli
