// Where a rank's streams are found, and the key by which its peers prove themselves: what it tells
// them as it joins. Pure.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/blob.hpp"

namespace sprat::comm::sockets {

/// An address of numbers and a port.
struct NetAddress {
  bool v6 = false;
  std::array<std::uint8_t, 16> bytes{};  ///< IPv4: the first four.
  std::uint16_t port = 0;

  bool operator==(const NetAddress&) const = default;
};
/// "10.0.0.7" or "fd00::7"; nothing if it is neither.
std::optional<NetAddress> parse_address(const std::string& text, std::uint16_t port);
/// "10.0.0.7:1234", "[fd00::7]:1234".
std::string describe(const NetAddress& address);

/// As the kernel's calls take it.
struct KernelAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  sockaddr* any() { return reinterpret_cast<sockaddr*>(&storage); }
};
KernelAddress to_kernel(const NetAddress& address);
/// Of a port that the kernel has chosen.
std::uint16_t port_of(const KernelAddress& address);

struct Contact {
  /// Random. Who connects proves that it knows this of both: they are told over connections that
  /// have proved the job's token, and to nobody else.
  std::array<std::byte, 32> key{};
  std::uint32_t streams_a_rail = 1;
  std::vector<NetAddress> rails;

  bool operator==(const Contact&) const = default;
};
inline constexpr std::size_t most_rails = 16;

Blob encode(const Contact& contact);
/// Nothing if the bytes are none.
std::optional<Contact> decode_contact(const Blob& blob);

/// The contacts of many peers, as they travel: of most of them, only the bytes are ever needed.
class ContactBook {
 public:
  /// That of the next peer; nothing: it is not to be reached.
  void add(const Blob& encoded);
  std::optional<Contact> of(int peer) const;

 private:
  Blob bytes_;                       ///< Of peer 0, of peer 1, and so on.
  std::vector<std::uint32_t> ends_;  ///< By peer.
};

}  // namespace sprat::comm::sockets
