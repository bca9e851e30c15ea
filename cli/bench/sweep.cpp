// What `sprat bench` goes through, and how planners see it.
#include "cli/bench/sweep.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace sprat::cli {

std::vector<ReduceOp> Sweep::ops_for(Collective collective, DType dtype) const {
  if (!reduces(collective)) {
    return {ReduceOp::sum};
  }
  std::vector<ReduceOp> chosen;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(chosen),
               [dtype](ReduceOp op) { return takes(op, dtype); });
  return chosen;
}

std::size_t Sweep::rows() const {
  std::size_t tables = 0;
  for (Collective collective : collectives) {
    for (DType dtype : dtypes) {
      tables += ops_for(collective, dtype).size();
    }
  }
  return tables * sizes.size();
}

std::optional<collectives::Collective> planned(Collective collective) {
  if (collective == Collective::all_gatherv) {
    return collectives::Collective::all_gather;
  }
  if (collective == Collective::reduce_scatterv) {
    return collectives::Collective::reduce_scatter;
  }
  for (collectives::Collective candidate : collectives::all_collectives()) {
    if (std::string_view(name(collective)) == name(candidate)) {
      return candidate;
    }
  }
  return std::nullopt;  // sendrecv is two messages, not a plan
}

std::optional<collectives::Problem> problem_of(
    const Task& task, std::shared_ptr<const collectives::Grouping> grouping, int rank) {
  const auto collective = planned(task.collective);
  if (!collective) {
    return std::nullopt;
  }
  auto blocks =
      std::make_shared<const collectives::BlockCounts>(block_counts(task, grouping->ranks()));
  const std::size_t count = blocks->largest();
  const bool on_one_host = grouping->hosts() == 1;
  return collectives::Problem{.collective = *collective,
                              .rank = rank,
                              .grouping = std::move(grouping),
                              .count = count,
                              .counts = is_uneven(task.collective) ? std::move(blocks) : nullptr,
                              .input = task.dtype,
                              .output = task.dtype,
                              .op = task.op,
                              .root = task.root,
                              .out_of_place = on_one_host && !task.in_place};
}

}  // namespace sprat::cli
