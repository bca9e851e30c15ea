// What `sprat bench` goes through, and how planners see it.
#include "cli/bench/sweep.hpp"

#include <algorithm>
#include <iterator>

namespace sprat::cli {

std::vector<ReduceOp> Sweep::ops_for(const BenchCall& call, DType dtype) const {
  if (!reduces(call)) {
    return {ReduceOp::sum};
  }
  std::vector<ReduceOp> chosen;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(chosen),
               [dtype](ReduceOp op) { return takes(op, dtype); });
  return chosen;
}

std::size_t Sweep::rows() const {
  std::size_t tables = 0;
  for (const BenchCall& call : calls) {
    for (DType dtype : dtypes) {
      tables += ops_for(call, dtype).size();
    }
  }
  return tables * sizes.size();
}

std::optional<collectives::Problem> problem_of(
    const Task& task, std::shared_ptr<const collectives::Grouping> grouping, int rank) {
  if (!task.call.collective) {
    return std::nullopt;  // two messages, not a plan
  }
  auto blocks =
      std::make_shared<const collectives::BlockCounts>(block_counts(task, grouping->ranks()));
  const std::size_t count = blocks->largest();
  const bool on_one_host = grouping->hosts() == 1;
  return collectives::Problem{.collective = *task.call.collective,
                              .rank = rank,
                              .grouping = std::move(grouping),
                              .count = count,
                              .counts = task.call.uneven ? std::move(blocks) : nullptr,
                              .input = task.dtype,
                              .output = task.dtype,
                              .op = task.op,
                              .root = task.root,
                              .out_of_place = on_one_host && !task.in_place};
}

}  // namespace sprat::cli
