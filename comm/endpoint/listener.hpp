// The end that listens: who proves to know its invitation gets a connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include "comm/endpoint/connection.hpp"
#include "comm/endpoint/devices.hpp"
#include "comm/endpoint/invitation.hpp"
#include "comm/transports/sockets/tcp.hpp"

namespace sprat::comm::endpoint {

/// Not thread-safe.
class Listener {
 public:
  /// Throws Error{unavailable}.
  Listener(const Device& device, PortRange ports);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const Invitation& invitation() const { return invitation_; }
  /// The next connection all of whose streams stand; null if there is none yet: call again. Any
  /// number of them may come of one listener. Never waits.
  std::unique_ptr<Connection> accept();

 private:
  /// A connection that some streams of stand.
  struct Coming {
    int number = 0;
    Connection::Channels channels;
    std::size_t missing = 0;
  };

  void accept_strangers();
  void greet(std::unique_ptr<sockets::Channel>& stranger);
  void settle(std::unique_ptr<sockets::Channel>& stranger);
  Coming& coming(int number);

  sockets::TcpListener socket_;
  Invitation invitation_;
  std::vector<std::unique_ptr<sockets::Channel>> strangers_;  ///< In order of arrival.
  std::list<Coming> coming_;
};

}  // namespace sprat::comm::endpoint
