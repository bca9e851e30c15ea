// How the processes of a job send each other blocks: what `peer_blocks` stands on. Implementations
// wrap sockets, or in tests mailboxes of one process.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/caches/peer_wire.hpp"

namespace sprat::io {

/// As it came, and looked at no further than its header.
struct ReceivedBlock {
  std::size_t from = 0;  ///< A process, as the transport knows it, not as the message says.
  PeerHeader header;
  std::vector<std::byte> body;  ///< header.body_bytes() of them.
};

/// Messages come as they were sent or not at all, in any order; a host that is gone, slow or mad
/// delays nobody else.
class BlockPeers {
 public:
  virtual ~BlockPeers() = default;
  /// The host of each process that takes part, equal on all of them but for here(). Processes of
  /// one host have equal names, and share its cache.
  virtual std::span<const std::string> hosts() const = 0;
  /// This process, as all numbers here.
  virtual std::size_t here() const = 0;
  /// Starts to send the header and the body, whose memory `owner` keeps. False if the host cannot
  /// be reached now, or too much waits for it. Any thread; never waits.
  virtual bool send(std::size_t to, const PeerHeader& header, std::span<const std::byte> body,
                    std::shared_ptr<const void> owner) = 0;
  /// What came, as soon as there is something, wake() was called or `longest` has passed. One
  /// thread.
  virtual std::vector<ReceivedBlock> receive(std::chrono::nanoseconds longest) = 0;
  /// Makes a receive() return. Any thread.
  virtual void wake() = 0;
};

}  // namespace sprat::io
