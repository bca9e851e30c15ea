// Votes: what most ranks have is taken to be right.
#include "collectives/digests/replica_sums.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace sprat::collectives::digests {
namespace {

/// Ranks by what they have, of one communicator after so many calls.
using Votes = std::map<std::uint64_t, std::vector<int>>;

ReplicaFault fault_of(const Votes& votes, std::uint64_t calls) {
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second.size(); });
  ReplicaFault fault{.wrong = {}, .right = most->second, .calls = calls};
  for (const auto& [sum, ranks] : votes) {
    if (sum != most->first) {
      fault.wrong.insert(fault.wrong.end(), ranks.begin(), ranks.end());
    }
  }
  if (fault.wrong.size() >= fault.right.size()) {  // nobody knows who is right
    fault.wrong.insert(fault.wrong.end(), fault.right.begin(), fault.right.end());
    fault.right.clear();
  }
  std::ranges::sort(fault.wrong);
  return fault;
}

}  // namespace

std::optional<ReplicaFault> find_fault(std::span<const ReplicaSum> sums, int ranks) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, Votes> compared;
  for (std::size_t at = 0; at < sums.size(); ++at) {
    const ReplicaSum& one = sums[at];
    if (one.calls > 0) {
      const int rank = static_cast<int>(at / (sums.size() / static_cast<std::size_t>(ranks)));
      compared[{one.communicator, one.calls}][one.sum].push_back(rank);
    }
  }
  // In the order of keys, so that every rank names the same fault if there are several.
  for (const auto& [key, votes] : compared) {
    if (votes.size() > 1) {
      return fault_of(votes, key.second);
    }
  }
  return std::nullopt;
}

}  // namespace sprat::collectives::digests
