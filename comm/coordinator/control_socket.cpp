#include "comm/coordinator/control_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "comm/base/check.hpp"
#include "comm/base/fork.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int socket_type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

void set_option(int descriptor, int level, int option, int value) {
  // A kernel that refuses an option delivers later, or notices a cut link later, but all the same.
  setsockopt(descriptor, level, option, &value, sizeof value);
}

/// A host that falls silent is given up after five seconds without an acknowledgement, be it of
/// data or of a probe. A process that is stopped is not lost by this, since its kernel acknowledges
/// for it.
void set_tcp_options(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 5'000);
}

/// A child of fork() closes its copy, which would keep the connection open after this process.
int make_socket(int family) {
  return open_here_only([&] { return ::socket(family, socket_type, 0); });
}

}  // namespace

StreamSocket adopt_socket(asio::io_context& io, int family, int descriptor) {
  StreamSocket socket(io);
  try {
    socket.assign(asio::generic::stream_protocol(family, 0), descriptor);
  } catch (...) {
    // The kernel watches no more, or there is no memory. Left open, it would be a connection for
    // the other end.
    close_and_forget(descriptor);
    throw;
  }
  return socket;
}

std::optional<Listening> listen_on(asio::io_context& io, int port) {
  int error = 0;
  // A socket of IPv6 that is not restricted to it takes IPv4 connections as well. Where the kernel
  // has no IPv6 there is a socket of IPv4.
  for (const tcp& protocol : {tcp::v6(), tcp::v4()}) {
    const int descriptor = make_socket(protocol.family());
    if (descriptor < 0) {
      error = errno;
      continue;
    }
    tcp::acceptor acceptor(io, protocol, descriptor);
    // Closed connections of an earlier job may still occupy the port for a while, which this option
    // permits. It does not take the port from a socket that listens there.
    set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    if (protocol == tcp::v6()) {
      set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    boost::system::error_code failed;
    acceptor.bind(tcp::endpoint(protocol, static_cast<std::uint16_t>(port)), failed);
    if (!failed) {
      acceptor.listen(asio::socket_base::max_listen_connections, failed);
    }
    if (failed == asio::error::address_in_use) {
      return std::nullopt;
    }
    if (!failed) {
      const int bound = acceptor.local_endpoint().port();
      return Listening{std::move(acceptor), bound};
    }
    error = failed.value();
  }
  throw Error(ErrorCode::unavailable,
              text("cannot listen on port ", port, ": ", std::strerror(error)));
}

Listening adopt_listening(asio::io_context& io, int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  tcp::acceptor acceptor(io, address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), descriptor);
  const int port = acceptor.local_endpoint().port();
  return {std::move(acceptor), port};
}

Accepted accept_one(asio::io_context& io, tcp::acceptor& acceptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  const int descriptor = open_here_only([&] {
    return ::accept4(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&address), &length,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
  });
  if (descriptor < 0) {
    return {std::nullopt, "", is_exhaustion({errno, boost::system::system_category()})};
  }
  set_tcp_options(descriptor);
  tcp::endpoint from;
  std::memcpy(from.data(), &address, std::min<std::size_t>(length, from.capacity()));
  return {adopt_socket(io, address.ss_family, descriptor), endpoint_text(from), false};
}

StreamSocket open_socket(asio::io_context& io, const tcp& protocol) {
  const int descriptor = make_socket(protocol.family());
  if (descriptor < 0) {
    throw boost::system::system_error(errno, boost::system::system_category());
  }
  set_tcp_options(descriptor);
  return adopt_socket(io, protocol.family(), descriptor);
}

std::pair<StreamSocket, StreamSocket> socket_pair(asio::io_context& io) {
  // Noted under one lock: a child that was forked between two would keep the second end open.
  const std::array<int, 2> ends = open_two_here_only([] {
    std::array<int, 2> made = {-1, -1};
    return ::socketpair(AF_UNIX, socket_type, 0, made.data()) == 0 ? made
                                                                   : std::array<int, 2>{-1, -1};
  });
  need(ends[0] >= 0, "cannot make a pair of sockets: ", std::strerror(errno));
  StreamSocket first = adopt_socket(io, AF_UNIX, ends[0]);
  return {std::move(first), adopt_socket(io, AF_UNIX, ends[1])};
}

bool is_exhaustion(const boost::system::error_code& error) {
  constexpr std::array errors = {EMFILE, ENFILE, ENOMEM, ENOBUFS};
  return error.category() == boost::system::system_category() &&
         std::ranges::count(errors, error.value()) > 0;
}

std::string endpoint_text(const tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  // An IPv4 peer of a socket of IPv6 appears as ::ffff:a.b.c.d, which people do not look for.
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  const char* format = address.is_v6() ? "[{}]:{}" : "{}:{}";
  return fmt::format(fmt::runtime(format), address.to_string(), endpoint.port());
}

}  // namespace sprat::comm
