// A connection of two processes: messages with tags, both ways, over one stream or several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/base/fork.hpp"
#include "comm/transports/sockets/channel.hpp"
#include "comm/transports/sockets/link.hpp"
#include "comm/transports/sockets/read_buffer.hpp"
#include "comm/transports/transport.hpp"
#include "comm/transports/unexpected.hpp"

namespace sprat::comm::endpoint {

/// Not thread-safe. Requests and memory belong to it while posted; nothing touches them once it is
/// destroyed, whatever their state.
class Connection {
 public:
  using Channels = std::vector<std::unique_ptr<sockets::Channel>>;

  /// Of channels that have greeted, by stream.
  explicit Connection(Channels channels);
  /// If nothing is under way, waits up to a second for what was sent to be with the other host;
  /// else it breaks off at once.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Ends once the kernel has all of the message. Messages of equal tags keep their order.
  void send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data);
  /// Takes the next message of this tag. A longer one fails with EMSGSIZE and takes nothing else
  /// along.
  void recv(MessageRequest& request, std::uint64_t tag, std::span<std::byte> data);
  /// Moves what moves now; whether anything did. Requests of a connection that is lost end with
  /// why: ECONNRESET if the other end has closed it, or its process is gone.
  bool progress() noexcept;
  /// 0 while it stands.
  int error() const noexcept { return error_; }

 private:
  bool look(bool awaited) noexcept;
  bool read(sockets::Channel& channel) noexcept;
  bool write() noexcept;
  void end(int error) noexcept;
  bool idle() noexcept;

  const ProcessMark mark_;
  const UnexpectedRules unexpected_;
  sockets::Link link_;
  Channels channels_;
  sockets::ReadBuffer buffer_;
  int error_ = 0;
};

}  // namespace sprat::comm::endpoint
