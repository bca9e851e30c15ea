#include "comm/transports/sockets/tcp.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/base/check.hpp"

namespace sprat::comm::sockets {
namespace {

constexpr int stream_type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
/// The kernel lets an IPv6 address be used only after it has looked for duplicates of it, a second
/// or two after its interface came up.
constexpr std::chrono::milliseconds address_patience{4'000}, address_look{50};

void set_number(int descriptor, int level, int option, int value) {
  // A kernel that refuses an option delivers later, or notices a cut link later, but all the same.
  setsockopt(descriptor, level, option, &value, sizeof value);
}

/// No TCP_USER_TIMEOUT: it also ends a connection whose peer lives and reads nothing for a while,
/// since its memory is full or a debugger has stopped it. That a host has gone the control
/// connections find out.
void set_stream_options(int descriptor) {
  set_number(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_number(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_number(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_number(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_number(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 6);
}

/// The error, or 0 and a socket that listens.
int try_listening(TcpListener& listener, std::uint16_t port) {
  listener.address.port = port;
  const int family = listener.address.v6 ? AF_INET6 : AF_INET;
  listener.socket = Descriptor(open_here_only([&] { return ::socket(family, stream_type, 0); }));
  const int descriptor = listener.socket.number();
  if (descriptor < 0) {
    return errno;
  }
  // Closed connections of an earlier job may still occupy the port for a while, which this option
  // permits. It does not take the port from a socket that listens there.
  set_number(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
  KernelAddress address = to_kernel(listener.address);
  if (::bind(descriptor, address.any(), address.bytes) != 0 ||
      ::listen(descriptor, SOMAXCONN) != 0 ||
      ::getsockname(descriptor, address.any(), &address.bytes) != 0) {
    return errno;
  }
  listener.address.port = port_of(address);
  return 0;
}

/// From the end of the range, for the coordinator and the survivor listeners take theirs from the
/// beginning.
int try_range(TcpListener& listener, PortRange ports) {
  int error = EADDRINUSE;
  for (int port = ports.last; port >= ports.first && error == EADDRINUSE; --port) {
    error = try_listening(listener, static_cast<std::uint16_t>(port));
  }
  return error;
}

}  // namespace

void Descriptor::close() noexcept {
  const int number = std::exchange(number_, -1);
  if (number >= 0 && mark_.here()) {
    close_and_forget(number);
  }
}

TcpListener listen_at(const NetAddress& address, PortRange ports) {
  TcpListener listener{.socket = {}, .address = address};
  const auto deadline = std::chrono::steady_clock::now() + address_patience;
  int error = try_range(listener, ports);
  while (error == EADDRNOTAVAIL && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(address_look);
    error = try_range(listener, ports);
  }
  need(error != EADDRINUSE || ports.any(), "every port of SPRAT_PORTS=", ports.first, "-",
       ports.last,
       " is taken on this host; every rank needs one, a second to speak to other hosts, and rank 0 "
       "one more: see "
       "who has them with ss -ltnp, or set a wider range on every rank");
  need(error == 0, "cannot listen for the streams of other hosts on ", describe(address), ": ",
       std::strerror(error), "; set SPRAT_INTERFACE to an interface that is up: ip -br addr");
  return listener;
}

Descriptor accept_from(const TcpListener& listener) noexcept {
  const int descriptor = open_here_only([&] {
    return ::accept4(listener.socket.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  });
  if (descriptor >= 0) {
    set_stream_options(descriptor);
  }
  return Descriptor(descriptor);
}

Descriptor connect_to(const NetAddress& from, const NetAddress& to) noexcept {
  const int family = from.v6 ? AF_INET6 : AF_INET;
  Descriptor socket(open_here_only([&] { return ::socket(family, stream_type, 0); }));
  if (socket.number() < 0) {
    return socket;
  }
  set_stream_options(socket.number());
  // From the rail's own address, so that it goes out by the rail's interface; which port is decided
  // as it connects, when more of them are free.
  set_number(socket.number(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  NetAddress source = from;
  source.port = 0;
  KernelAddress near = to_kernel(source), far = to_kernel(to);
  const bool begun =
      ::bind(socket.number(), near.any(), near.bytes) == 0 &&
      (::connect(socket.number(), far.any(), far.bytes) == 0 || errno == EINPROGRESS);
  if (!begun) {
    const int error = errno;
    socket.close();
    errno = error;
  }
  return socket;
}

int unacknowledged(int socket) noexcept {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace sprat::comm::sockets
