// Sockets of the control channel: close-on-exec, without delay, and with an end that is noticed.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <string>
#include <utility>

namespace sprat::comm {

/// TCP, or a pair of local sockets.
using StreamSocket = boost::asio::generic::stream_protocol::socket;
/// Set up with io_context, protocol and a descriptor that it owns from then on. Throws
/// boost::system::system_error, with the descriptor closed.
StreamSocket adopt_socket(boost::asio::io_context& io, int family, int descriptor);

struct Listening {
  boost::asio::ip::tcp::acceptor acceptor;
  int port = 0;
};
/// On every address of this host, IPv6 too where there is any. Port 0: a free one. Null if the port
/// is taken; throws Error{unavailable} otherwise.
std::optional<Listening> listen_on(boost::asio::io_context& io, int port);
/// A listening socket that is owned from now on.
Listening adopt_listening(boost::asio::io_context& io, int descriptor);
/// The next connection that waits, if any. `retry_later` is set if there are no descriptors left.
struct Accepted {
  std::optional<StreamSocket> socket;
  std::string from;  ///< "10.0.0.2:1234"
  bool retry_later = false;
};
Accepted accept_one(boost::asio::io_context& io, boost::asio::ip::tcp::acceptor& acceptor);

/// An open socket for connecting; throws boost::system::system_error.
StreamSocket open_socket(boost::asio::io_context& io, const boost::asio::ip::tcp& protocol);
/// Two ends of one line inside this process.
std::pair<StreamSocket, StreamSocket> socket_pair(boost::asio::io_context& io);

/// No descriptors or memory are left, in this process or this host.
bool is_exhaustion(const boost::system::error_code& error);

/// "[::1]:80".
std::string endpoint_text(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace sprat::comm
