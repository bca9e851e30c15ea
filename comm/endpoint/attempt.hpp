// The end that connects: from an invitation to a connection, without waiting.
#pragma once

#include <memory>
#include <vector>

#include "comm/endpoint/connection.hpp"
#include "comm/endpoint/devices.hpp"
#include "comm/endpoint/invitation.hpp"

namespace sprat::comm::endpoint {

/// Not thread-safe.
class Attempt {
 public:
  /// Begins. Throws Error{unavailable}.
  Attempt(const Device& from, const Invitation& to);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// The connection once all its streams stand; null before: call again. It needs who listens to
  /// call Listener::accept. Throws Error{unavailable} if there will be none; nothing may be called
  /// after either.
  std::unique_ptr<Connection> poll();

 private:
  void start();
  std::unique_ptr<sockets::Channel> connect(std::size_t stream);
  void greet(std::size_t stream);
  [[noreturn]] void give_up(int error) const;

  Device from_;
  Invitation to_;
  int number_ = 0;
  int retries_ = 0;
  std::vector<std::unique_ptr<sockets::Channel>> channels_;
  std::vector<bool> stands_;
};

}  // namespace sprat::comm::endpoint
