// Who a rank deals with: on its own host, and one rank of every other.
#include "collectives/patterns/peers.hpp"

#include <algorithm>

namespace sprat::collectives {

namespace {

/// Ranks of the host `distance` further on, from `problem.rank`'s position on and round again.
void append_host(const Problem& problem, int distance, std::vector<int>& ranks) {
  const Grouping& grouping = *problem.grouping;
  const int host = (grouping.host_of(problem.rank) + distance) % grouping.hosts();
  const std::vector<int>& members = grouping.members(host);
  const auto first = static_cast<std::size_t>(grouping.local_index(problem.rank));
  for (std::size_t step = 0; step < members.size(); ++step) {
    ranks.push_back(members[(first + step) % members.size()]);
  }
}

}  // namespace

std::vector<int> local_ranks(const Problem& problem) {
  std::vector<int> ranks;
  append_host(problem, 0, ranks);
  return ranks;
}

std::vector<int> local_ranks_peers_first(const Problem& problem) {
  std::vector<int> ranks = local_ranks(problem);
  std::rotate(ranks.begin(), ranks.begin() + 1, ranks.end());
  return ranks;
}

std::vector<int> remote_ranks(const Problem& problem) {
  std::vector<int> ranks;
  for (int distance = 1; distance < problem.grouping->hosts(); ++distance) {
    append_host(problem, distance, ranks);
  }
  return ranks;
}

int carrier(const Grouping& grouping, int host, int owner) {
  if (grouping.host_of(owner) == host) {
    return owner;
  }
  const std::vector<int>& members = grouping.members(host);
  return members[static_cast<std::size_t>(owner) % members.size()];
}

}  // namespace sprat::collectives
