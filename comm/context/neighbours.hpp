// Who shares a process, a machine and a host, decided from what all ranks told each other. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/context/peer_info.hpp"

namespace sprat::comm {

/// Whom a rank may share memory with, by what the others say of themselves.
struct Neighbours {
  std::vector<int> same_host;    ///< Ranks whose memory it ought to map, itself among them.
  bool one_process = false;      ///< All ranks are threads of one process.
  std::size_t ranks_a_core = 1;  ///< On its machine, of the cores that they may use; rounded up.
  bool oversubscribed() const { return ranks_a_core > 1; }
};
Neighbours find_neighbours(std::span<const PeerInfo> infos, int rank);

/// How the job lies on hosts, once each rank has tried to map its neighbours' memory.
struct Hosts {
  std::vector<int> host_of;  ///< A dense index for each rank: equal where memory is shared.
  MemoryMap::Readability readability;
  bool several = false;  ///< More than one.
};
Hosts decide_hosts(const std::vector<Reach>& reaches, int rank);

}  // namespace sprat::comm
