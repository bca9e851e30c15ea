// Who a rank deals with: on its own host, and one rank of every other.
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

std::vector<int> from_me_on(const Problem& problem, bool local) {
  std::vector<int> ranks;
  for (int step = 0; step < problem.ranks(); ++step) {
    const int rank = (problem.rank + step) % problem.ranks();
    if (problem.grouping->together(problem.rank, rank) == local) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::vector<int> local_ranks(const Problem& problem) { return from_me_on(problem, true); }

std::vector<int> remote_ranks(const Problem& problem) { return from_me_on(problem, false); }

int carrier(const Grouping& grouping, int host, int owner) {
  if (grouping.host_of(owner) == host) return owner;
  const std::vector<int>& members = grouping.members(host);
  return members[static_cast<std::size_t>(owner) % members.size()];
}

Operand widened(const Problem& problem, Plan& plan, const Operand& contribution) {
  if (problem.input == problem.accumulator()) return contribution;
  const Operand wide = plan.scratch(contribution.count);
  const Source own{.from = contribution, .covers = {problem.rank, problem.rank + 1}};
  plan.reduce({&own, 1}, wide);
  return wide;
}

}  // namespace sprat::collectives
