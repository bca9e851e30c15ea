// Whose process is at the other end of a connection, by the kernel's word, and why it is not to be
// believed.
#pragma once

#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>
#include <istream>
#include <optional>
#include <string>

#include "comm/coordinator/control_socket.hpp"
#include "comm/coordinator/trust.hpp"

namespace sprat::comm {

/// Why a connection is not to be believed, for people; empty if it is.
struct Objection {
  std::string text;
  bool elsewhere = false;  ///< It comes from another host (or network namespace).
};
/// Throws boost::system::system_error where the system cannot be asked, as when this process has no
/// descriptor left.
Objection object_to(Trust trust, const StreamSocket& socket);

/// The two ends of a connection, as this process sees them.
struct Ends {
  boost::asio::ip::tcp::endpoint near, far;
};
/// Pure. Who owns the far end, which must be established, by /proc/net/tcp or tcp6's text.
std::optional<uid_t> find_owner(std::istream& table, const Ends& ends);

}  // namespace sprat::comm
