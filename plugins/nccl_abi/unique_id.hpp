// An ncclUniqueId: where the store is in which a communicator's ranks meet, and the key that opens
// their drawer of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/nccl_abi/abi.h"

namespace sprat::nccl {

using Key = std::array<std::uint8_t, 16>;

/// An IP address, in the order of the network; IPv4 has 4 bytes.
struct Address {
  bool v6 = false;
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Address&) const = default;
};

struct MeetingPoint {
  Key key{};
  std::uint64_t host = 0;  ///< Equal on processes of one running system.
  std::uint16_t port = 0;
  std::vector<Address> addresses;  ///< The first `most_addresses` are kept.
  bool operator==(const MeetingPoint&) const = default;
};
inline constexpr std::size_t most_addresses = 5;

ncclUniqueId pack(const MeetingPoint& point);
/// Throws ncclInvalidArgument if the id is none of ours.
MeetingPoint unpack(const ncclUniqueId& id);

/// Random, by the system.
Key random_key();
/// Of this running system: its boot and its name.
std::uint64_t host_number();
/// Of this host, by the interfaces that `chosen` allows as SPRAT_INTERFACE does ("eth0,eth1",
/// "^docker0", empty: all but the loopback). Link-local ones do not count.
std::vector<Address> own_addresses(const std::string& chosen);
/// The addresses to try, in their order: the loopback first where the store is on this host.
std::vector<Address> addresses_to_try(const MeetingPoint& point, std::uint64_t this_host);

}  // namespace sprat::nccl
