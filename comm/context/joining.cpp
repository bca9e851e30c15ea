#include "comm/context/joining.hpp"

#include <sched.h>

#include <numeric>
#include <set>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/memory/foreign_memory.hpp"
#include "comm/transports/transport_kind.hpp"

namespace sprat::comm {
namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

struct ByName {
  bool operator()(const std::shared_ptr<const std::string>& one,
                  const std::shared_ptr<const std::string>& other) const {
    return *one < *other;
  }
};

/// The secret that survivors prove to each other is rank 0's, so nobody else says one.
void settle(SurvivorListener& survivor_listener, int rank, const std::vector<PeerInfo>& infos) {
  std::vector<std::vector<SocketAddress>> addresses;
  for (std::size_t peer = 0; peer < infos.size(); ++peer) {
    need(infos[peer].survival.has_value(), "joining: rank ", peer,
         " does not say where it listens");
    addresses.push_back(infos[peer].survival->addresses);
  }
  survivor_listener.settle(rank, AddressBook(addresses), infos.front().survival->secret);
}

}  // namespace

// SPRAT_HOST may be a list: of the ranks as the job first had them.
Joining::Joining(const Inputs& options)
    : options_(options),
      shrunk_(options.survivor_listener != nullptr && options.survivor_listener->settled()),
      host_(host_identity(options.config, shrunk_ ? options.survivor_listener->number() : rank())) {
}

const std::vector<PeerInfo>& Joining::meet(const MemoryMap::Offer& offer, std::uint64_t context) {
  PeerInfo mine{.label = host_.label,
                .machine = host_.machine,
                .name = host_.name,
                .cores = allowed_cores(),
                .memory = offer,
                .context = context,
                .trace = options_.config.trace};
  if (options_.config.cross_memory) {
    allow_reading();
  }
  if (options_.survivor_listener != nullptr && !shrunk_) {
    mine.survival = {.addresses = options_.survivor_listener->addresses(),
                     .secret = rank() == 0 ? options_.survivor_listener->secret() : ""};
  }
  options_.rendezvous.set_host(host_.number());
  const std::vector<Blob> greetings =
      options_.rendezvous.exchange(encode(mine), "meeting", options_.deadline);
  for (int peer = 0; peer < size(); ++peer) {
    infos_.push_back(decode_peer_info(greetings[peer], peer));
  }
  if (options_.survivor_listener != nullptr && !shrunk_) {
    settle(*options_.survivor_listener, rank(), infos_);
  }
  neighbours_ = find_neighbours(infos_, rank());
  neighbours_.one_process &= options_.may_share_process;
  return infos_;
}

Reach Joining::probe(MemoryMap& memory) {
  Reach reach{.label = host_.label};
  for (const int peer : neighbours_.same_host) {
    if (!memory.reaches(peer)) {
      if (const auto why = memory.map(peer)) {
        if (unmapped_.empty()) {
          unmapped_ =
              text("the memory of rank ", peer, " (pid ", infos_[peer].memory.pid, "): ", *why);
        }
        continue;
      }
    }
    reach.mapped.push_back(peer);
    if (options_.config.cross_memory && !memory.in_process() && memory.try_reading(peer)) {
      reach.readable.push_back(peer);
    }
  }
  return reach;
}

void Joining::map_memory(MemoryMap& memory) {
  for (const int peer : neighbours_.same_host) {
    memory.meet(peer, infos_[peer].memory);
  }
  if (neighbours_.one_process) {
    for (int peer = 0; peer < size(); ++peer) {
      memory.meet(peer, infos_[peer].memory);  // of other names for this host, too
    }
    memory.share_process();
  }
  const std::vector<Blob> told =
      options_.rendezvous.exchange(encode(probe(memory)), "mapping memory", options_.deadline);
  std::vector<Reach> reaches;
  for (int peer = 0; peer < size(); ++peer) {
    reaches.push_back(decode_reach(told[peer], peer, size()));
  }
  hosts_ = decide_hosts(reaches, rank());
  hosts_.readability.everybodys |= neighbours_.one_process;
  memory.settle(hosts_.readability);
}

std::vector<Peer> Joining::peers() const {
  std::vector<Peer> peers;
  std::set<std::shared_ptr<const std::string>, ByName> names;
  for (int peer = 0; peer < size(); ++peer) {
    const int host = hosts_.host_of[peer];
    auto name = std::make_shared<const std::string>(infos_[peer].name);
    peers.push_back({.pid = infos_[peer].memory.pid,
                     .host = *names.insert(std::move(name)).first,
                     .host_index = host,
                     .local = host == hosts_.host_of[rank()]});
  }
  return peers;
}

// Threads of one process share memory even if SPRAT_HOST says that they are hosts.
bool Joining::is_local(int peer) const {
  return neighbours_.one_process || hosts_.host_of[peer] == hosts_.host_of[rank()];
}

std::unique_ptr<MessageTransport> Joining::open_local(MemoryMap& memory,
                                                      std::function<void(int peer)> ring) const {
  const TransportKind& kind = choose_transport(TransportKind::Scope::host, options_.config);
  TransportOptions local{.config = options_.config,
                         .rank = rank(),
                         .size = size(),
                         .ranks = {},
                         .ring = std::move(ring)};
  for (int peer = 0; peer < size(); ++peer) {
    if (is_local(peer)) {
      local.ranks.push_back(peer);
    }
  }
  // Local ranks have allocated the same until now, so this lies at the same offset on all of them.
  const std::size_t bytes = kind.control_bytes(local.ranks.size());
  const std::size_t offset = memory.allocate(bytes);
  local.mine = {memory.control(offset), bytes};
  for (const int peer : local.ranks) {
    local.theirs.push_back(memory.control_of(peer, offset));
  }
  return kind.open(local);
}

std::unique_ptr<MessageTransport> Joining::open_wire(TransportAddresses& mine) const {
  if (!hosts_.several || neighbours_.one_process) {
    return nullptr;
  }
  std::unique_ptr<MessageTransport> wire;
  if (options_.open_wire) {
    mine.wire_kind = "a simulation";
    wire = options_.open_wire(options_.config, rank(), size());
  } else {
    const TransportKind& kind = choose_transport(TransportKind::Scope::network, options_.config);
    mine.wire_kind = kind.name;
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    wire = kind.open({.config = options_.config, .rank = rank(), .size = size(), .ranks = ranks});
  }
  mine.wire = wire->address();
  return wire;
}

Progress::Transports Joining::open_transports(MemoryMap& memory,
                                              std::function<void(int peer)> ring) {
  TransportAddresses mine;
  Progress::Transports transports{.local = open_local(memory, std::move(ring)),
                                  .wire = open_wire(mine)};
  mine.local = transports.local->address();
  const std::vector<Blob> told =
      options_.rendezvous.exchange(encode(mine), "opening transports", options_.deadline);
  std::vector<Blob> local(told.size()), remote(told.size());
  for (int peer = 0; peer < size(); ++peer) {
    TransportAddresses theirs = decode_transport_addresses(told[peer], peer);
    if (is_local(peer)) {
      local[peer] = std::move(theirs.local);
      continue;
    }
    if (theirs.wire_kind != mine.wire_kind) {
      throw Error(ErrorCode::mismatch,
                  text("joining: rank ", peer, " would talk to other hosts through ",
                       theirs.wire_kind, ", rank ", rank(), " through ", mine.wire_kind),
                  peer);
    }
    remote[peer] = std::move(theirs.wire);
  }
  transports.local->connect(local);
  if (transports.wire) {
    transports.wire->connect(remote);
  }
  return transports;
}

}  // namespace sprat::comm
