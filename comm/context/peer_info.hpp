// What ranks tell each other as they join, and how that travels.
//
// What comes from another rank may be damaged: whatever cannot be meant is refused by name, with
// the rank that said it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/context/memory_map.hpp"
#include "comm/host/grouping.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm {

/// Who a rank is: what it greets the others with.
struct PeerInfo {
  /// How survivors find it when the job shrinks.
  struct Survival {
    std::vector<SocketAddress> addresses;
    std::string secret;
    bool operator==(const Survival&) const = default;
  };
  std::string label;  ///< HostIdentity's; and so are the next two.
  std::string machine;
  std::string name;
  std::vector<int> cores;  ///< Of its machine, those that its threads may run on.
  MemoryMap::Offer memory;
  std::uint64_t context = 0;  ///< Its Context's address, for ranks of its process.
  std::optional<Survival> survival = std::nullopt;
  std::string trace = {};  ///< Config::trace.
  bool operator==(const PeerInfo&) const = default;
};
Blob encode(const PeerInfo& info);
/// Throws Error{unavailable}; `rank` is who said it. So do the next ones.
PeerInfo decode_peer_info(const Blob& blob, int rank);

Blob encode(const Reach& reach);
/// All ranks that it names are below `size`.
Reach decode_reach(const Blob& blob, int rank, int size);

/// Where messages to a rank go, in its transports' own words; empty for one that it has not.
struct TransportAddresses {
  Blob local;
  Blob wire;
  std::string wire_kind;  ///< TransportKind::name.
  bool operator==(const TransportAddresses&) const = default;
};
Blob encode(const TransportAddresses& addresses);
TransportAddresses decode_transport_addresses(const Blob& blob, int rank);

}  // namespace sprat::comm
