#include "comm/context/neighbours.hpp"

#include <algorithm>
#include <set>

#include "comm/host/grouping.hpp"

namespace sprat::comm {

Neighbours find_neighbours(std::span<const PeerInfo> infos, int rank) {
  const PeerInfo& mine = infos[static_cast<std::size_t>(rank)];
  Neighbours found;
  found.one_process = true;
  std::size_t machine_ranks = 0;
  std::set<int> cores;
  for (std::size_t peer = 0; peer < infos.size(); ++peer) {
    const PeerInfo& theirs = infos[peer];
    const bool same_machine = theirs.machine == mine.machine;
    // A process id means something on one machine only.
    found.one_process &= same_machine && theirs.memory.pid == mine.memory.pid;
    if (same_machine) {
      ++machine_ranks;
      cores.insert(theirs.cores.begin(), theirs.cores.end());
    }
    if (theirs.label == mine.label) {
      found.same_host.push_back(static_cast<int>(peer));
    }
  }
  // Who does not know its cores never spins: it may be alone on one, or not.
  found.ranks_a_core =
      cores.empty() ? machine_ranks + 1 : (machine_ranks + cores.size() - 1) / cores.size();
  return found;
}

Hosts decide_hosts(const std::vector<Reach>& reaches, int rank) {
  Hosts hosts;
  hosts.host_of = group_hosts(reaches);
  const int own = hosts.host_of[static_cast<std::size_t>(rank)];
  std::vector<std::vector<int>> readable_by;
  hosts.readability.mine = true;
  for (std::size_t peer = 0; peer < reaches.size(); ++peer) {
    const int host = hosts.host_of[peer];
    const std::vector<int>& readable = reaches[peer].readable;
    hosts.readability.mine &= host != own || std::ranges::count(readable, rank) > 0;
    hosts.several |= host != hosts.host_of.front();
    readable_by.push_back(readable);
  }
  hosts.readability.everybodys = all_read_each_other(hosts.host_of, readable_by);
  return hosts;
}

}  // namespace sprat::comm
