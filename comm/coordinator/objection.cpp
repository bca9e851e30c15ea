#include "comm/coordinator/objection.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/ip/udp.hpp>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

namespace ip = boost::asio::ip;
using boost::system::system_error;
using ip::tcp;

constexpr std::string_view remedy =
    "; set SPRAT_TOKEN to the same secret on every rank, or launch with mpirun";

ip::address plain(const ip::address& address) {
  const bool mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  return mapped ? ip::make_address_v4(ip::v4_mapped, address.to_v6()) : address;
}

bool same(const tcp::endpoint& a, const tcp::endpoint& b) {
  // Only bytes are compared, for the kernel's table does not hold the scopes of link-local
  // addresses.
  const auto bytes = [](const ip::address& address) {
    return address.is_v4() ? ip::make_address_v6(ip::v4_mapped, address.to_v4()).to_bytes()
                           : address.to_v6().to_bytes();
  };
  return a.port() == b.port() && bytes(plain(a.address())) == bytes(plain(b.address()));
}

std::optional<unsigned> hexadecimal(std::string_view digits) {
  unsigned value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return value;
}

/// "0100007F:1F90": words of the address in this machine's order, and the port.
std::optional<tcp::endpoint> read_end(std::string_view text) {
  constexpr std::size_t word_digits = 8;
  const std::size_t digits = text.find(':');
  if (digits != word_digits && digits != 4 * word_digits) {
    return std::nullopt;
  }
  const auto port = hexadecimal(text.substr(digits + 1));
  unsigned char bytes[16] = {};
  for (std::size_t word = 0; word < digits / word_digits; ++word) {
    const auto value = hexadecimal(text.substr(word * word_digits, word_digits));
    if (!value) {
      return std::nullopt;
    }
    std::memcpy(bytes + 4 * word, &*value, 4);
  }
  if (!port) {
    return std::nullopt;
  }
  const auto number = static_cast<std::uint16_t>(*port);
  if (digits == word_digits) {
    return tcp::endpoint(ip::address_v4({bytes[0], bytes[1], bytes[2], bytes[3]}), number);
  }
  return tcp::endpoint(ip::address_v6(std::to_array(bytes)), number);
}

std::optional<Ends> ends_of(const StreamSocket& socket) {
  boost::system::error_code no_near, no_far;
  const auto near = socket.local_endpoint(no_near), far = socket.remote_endpoint(no_far);
  Ends ends;
  if (no_near || no_far || near.size() > ends.near.capacity() || far.size() > ends.far.capacity()) {
    return std::nullopt;
  }
  std::memcpy(ends.near.data(), near.data(), near.size());
  std::memcpy(ends.far.data(), far.data(), far.size());
  return ends;
}

/// Whether an address belongs to this host: what goes to one of these comes from the same address.
/// Throws system_error where nothing can be tried, as when this process has no descriptor left.
bool is_here(const ip::address& address) {
  boost::asio::io_context io;
  // Port 9 (discard) stands for any: connect() of a UDP socket only looks the route up.
  const ip::udp::endpoint to(plain(address), 9);
  ip::udp::socket probe(io, to.protocol());
  boost::system::error_code failed;
  probe.connect(to, failed);
  const auto from = failed ? ip::udp::endpoint() : probe.local_endpoint(failed);
  return !failed && from.address() == to.address();
}

/// By the kernel's tables. Throws system_error where none can be read.
std::optional<uid_t> find_owner(const Ends& ends) {
  int unread = 0;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    errno = 0;
    std::ifstream table(path);
    if (!table && unread == 0) {
      unread = errno;
    }
    if (const auto owner = sprat::comm::find_owner(table, ends)) {
      return owner;
    }
  }
  // A host without IPv6 has only the first table, so a missing one is no error.
  if (unread != 0 && unread != ENOENT) {
    throw system_error(unread, boost::system::system_category());
  }
  return std::nullopt;
}

Objection object_to_stranger(Trust trust, const Ends& ends) {
  if (!is_here(ends.far.address())) {
    // torchrun spreads jobs over hosts and gives no secret (docs/security.md).
    if (trust == Trust::launcher) {
      return {"", true};
    }
    return {
        text("it comes from another host, and without a secret only processes of this user on this "
             "host may join",
             remedy),
        true};
  }
  const auto owner = find_owner(ends);
  if (!owner) {
    return {text("nobody can tell whose process it is", remedy), false};
  }
  if (*owner == ::geteuid()) {
    return {};
  }
  return {text("it belongs to user ", *owner, ", this process to user ", ::geteuid(), remedy),
          false};
}

}  // namespace

std::optional<uid_t> find_owner(std::istream& table, const Ends& ends) {
  constexpr std::string_view established = "01";
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits;
    uid_t owner = 0;
    if (!(words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> owner)) {
      continue;  // the heading of the table
    }
    const auto theirs = read_end(local), ours = read_end(remote);
    // Only established connections count: the table gives one that its process has closed to root.
    if (theirs && ours && state == established && same(*theirs, ends.far) &&
        same(*ours, ends.near)) {
      return owner;
    }
  }
  return std::nullopt;
}

Objection object_to(Trust trust, const StreamSocket& socket) {
  if (trust == Trust::proof) {
    return {};
  }
  const auto ends = ends_of(socket);
  if (!ends) {
    return {"its connection has ended", false};
  }
  return object_to_stranger(trust, *ends);
}

}  // namespace sprat::comm
