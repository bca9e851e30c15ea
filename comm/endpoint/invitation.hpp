// What who listens tells who shall connect, over a way that only these two can read. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/transports/sockets/contact.hpp"
#include "comm/transports/sockets/handshake.hpp"

namespace sprat::comm::endpoint {

inline constexpr std::size_t key_bytes = 32;

struct Invitation {
  sockets::NetAddress address;
  /// Random; both ends of each stream prove that they know it, and neither sends it.
  std::array<std::byte, key_bytes> key{};
  std::uint16_t streams = 1;  ///< Of each connection: the listener's say, for it has to count them.

  bool operator==(const Invitation&) const = default;
};
Invitation invite(const sockets::NetAddress& address, std::size_t streams);

inline constexpr std::size_t invitation_bytes = 64;
using InvitationBytes = std::array<std::byte, invitation_bytes>;
InvitationBytes encode(const Invitation& invitation);
/// Nothing if the bytes are none, or of another version or byte order.
std::optional<Invitation> decode(const InvitationBytes& bytes);

/// What both ends of a stream prove. `from` of its name is the connection's number, which who
/// connects draws, so that streams of one connection find each other; `to` is 0.
std::string key_of(const Invitation& invitation, const sockets::StreamName& name);

}  // namespace sprat::comm::endpoint
