// How a rank joins: ranks meet, map each other's memory, and open their transports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/context/memory_map.hpp"
#include "comm/context/neighbours.hpp"
#include "comm/context/peer_info.hpp"
#include "comm/context/progress.hpp"
#include "comm/context/wait_policy.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "comm/host/topology.hpp"
#include "comm/survival/survivor_listener.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

/// What is known of a peer. Immutable after joining.
struct Peer {
  pid_t pid = 0;
  /// Name for people. Shared by the ranks of a host: of thousands of ranks it is kept once a host.
  std::shared_ptr<const std::string> host;
  int host_index = 0;  ///< Equal where memory is shared.
  bool local = false;  ///< Shares memory with this rank.
};

/// One rank's. The three phases are called in order, each once, and each by every rank: they throw
/// what Rendezvous::exchange() does, Error{unavailable}, and what transports throw.
class Joining {
 public:
  using Wires =
      std::function<std::unique_ptr<MessageTransport>(const Config& config, int rank, int size)>;

  /// What is referred to outlives this.
  struct Inputs {
    const Config& config;
    Rendezvous& rendezvous;
    SurvivorListener* survivor_listener =
        nullptr;  ///< Learns where survivors will meet; null: the job does not shrink.
    Clock::time_point deadline;
    const Wires& open_wire;  ///< Instead of the table's; may be empty.
    /// Ranks that are threads of one process may use each other's pointers.
    bool may_share_process = false;
  };
  explicit Joining(const Inputs& options);

  /// Every rank's greeting. `context` is the address of this rank's.
  const std::vector<PeerInfo>& meet(const MemoryMap::Offer& offer, std::uint64_t context);
  /// Maps the memory of this rank's neighbours, and agrees with all ranks who shares a host.
  void map_memory(MemoryMap& memory);
  /// One between local ranks, in their control segments; a wire if there are several hosts. `ring`
  /// wakes a local rank.
  Progress::Transports open_transports(MemoryMap& memory, std::function<void(int peer)> ring);

  // --- what was found out -----------------------------------------------------------------------
  const HostIdentity& host() const { return host_; }
  /// Once met. one_process only if these may use each other's pointers.
  const Neighbours& neighbours() const { return neighbours_; }
  /// Once memory is mapped.
  std::vector<Peer> peers() const;
  /// The first neighbour whose memory cannot be mapped, and why; empty: all can.
  const std::string& unmapped() const { return unmapped_; }

 private:
  int rank() const { return options_.rendezvous.rank(); }
  int size() const { return options_.rendezvous.size(); }
  bool is_local(int peer) const;
  Reach probe(MemoryMap& memory);
  std::unique_ptr<MessageTransport> open_local(MemoryMap& memory,
                                               std::function<void(int peer)> ring) const;
  /// Null if there is one host. Says in `mine` how it is reached.
  std::unique_ptr<MessageTransport> open_wire(TransportAddresses& mine) const;

  const Inputs options_;
  const bool shrunk_;  ///< This is not the process's first job.
  const HostIdentity host_;
  std::vector<PeerInfo> infos_;
  Neighbours neighbours_;
  Hosts hosts_;
  std::string unmapped_;
};

}  // namespace sprat::comm
