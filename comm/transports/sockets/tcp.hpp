// The kernel's calls about TCP that streams need: none waits, but for listening on an address that
// the kernel still looks for duplicates of.
#pragma once

#include <utility>

#include "comm/base/fork.hpp"
#include "comm/transports/sockets/contact.hpp"
#include "sprat/config.hpp"

namespace sprat::comm::sockets {

/// Owner of a descriptor. Children of fork() have no copy, and close nothing.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)), mark_(other.mark_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    number_ = std::exchange(other.number_, -1);
    mark_ = other.mark_;
    return *this;
  }
  int number() const { return number_; }
  const int& place() const { return number_; }
  void close() noexcept;

 private:
  int number_ = -1;
  ProcessMark mark_;
};

struct TcpListener {
  Descriptor socket;
  NetAddress address;  ///< With its port.
};
/// Listens on an address of this host, on a port of the range, the last free one. Throws
/// Error{unavailable}.
TcpListener listen_at(const NetAddress& address, PortRange ports);

/// Number -1: errno says why.
Descriptor accept_from(const TcpListener& listener) noexcept;
/// Begins to connect from an address of this host, of any port. Number -1: errno says why.
Descriptor connect_to(const NetAddress& from, const NetAddress& to) noexcept;
/// Bytes that the other host has not acknowledged yet.
int unacknowledged(int socket) noexcept;

}  // namespace sprat::comm::sockets
