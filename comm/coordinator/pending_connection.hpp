// A connection to the coordinator that has not joined yet.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>

#include "comm/coordinator/control_connection.hpp"
#include "comm/coordinator/control_greeting.hpp"
#include "comm/coordinator/objection.hpp"

namespace sprat::comm {

class ControlServer;

/// Encrypts, if it has to; greets, checks the proof, reads one Hello. Until then nothing but bytes
/// of fixed number is read, and by OpenSSL its handshake.
class PendingConnection final : public std::enable_shared_from_this<PendingConnection> {
 public:
  PendingConnection(std::weak_ptr<ControlServer> server, StreamSocket socket, std::string from);
  /// Begins the handshake. It is over within the deadline, or the connection is closed.
  void start();
  /// Ends it at once.
  void close();
  /// Sends a last frame; the connection ends when the other side has closed it, or at the deadline.
  void refuse(const Frame& frame);
  /// The connection, for the rank that has been let in; this object is done then.
  std::shared_ptr<ControlConnection> release();
  bool refused() const { return refused_; }
  const std::string& from() const { return from_; }
  /// Once it has proved the token.
  const Objection& objection() const { return objection_; }

 private:
  void read_greeting();
  void await_first_byte();
  void begin_encryption();
  void greet();
  void refuse_plain();
  void check_proof();
  void read_hello();
  void give_up();

  std::weak_ptr<ControlServer> server_;
  std::string from_;
  ControlLine line_;
  boost::asio::steady_timer timer_;
  Greeting greeting_;
  CoordinatorGreeting answer_;
  Proof proof_{};
  Objection objection_;
  bool refused_ = false;
  std::shared_ptr<ControlConnection> connection_;  ///< Once the proof was good.
};

}  // namespace sprat::comm
