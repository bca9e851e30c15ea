// What a medium must offer to carry messages between two ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/blob.hpp"

namespace sprat::comm {

/// One send or receive in flight. Owned by the caller, at a fixed address until no longer `posted`.
struct MessageRequest {
  enum class State : std::uint8_t { idle, posted, done, failed };
  State state = State::idle;
  std::size_t bytes = 0;  ///< Received length, when done.
  /// errno-like, when failed. EMSGSIZE: the message was longer than the buffer; `bytes` is its
  /// length, or 0 if that is not known.
  int error = 0;
  int peer = -1;
  std::array<void*, 8> provider{};  ///< For the transport alone.
};

/// Bits of a tag that count, from the lowest; the others are clear. libfabric's tcp, from 1.18 on,
/// has no more.
inline constexpr int tag_bits = 63;

/// A communicator's number, as far as tags hold it, has the bits below the highest one.
inline constexpr int communicator_bits = 15;
constexpr std::uint64_t communicator_of(std::uint64_t tag) {
  return tag >> (tag_bits - 1 - communicator_bits) & ((std::uint64_t{1} << communicator_bits) - 1);
}

/// A receive of as many bytes or more is for a message of just its length: of another length, it
/// may take what belongs to later messages of its tag. Shorter receives may be longer than what
/// comes. A transport may cut messages of this size into pieces.
inline constexpr std::size_t exact_bytes = 32 * 1024;

/// How a thread sleeps until a transport has news. Token held, except where it says otherwise.
class NewsDescriptors {
 public:
  virtual ~NewsDescriptors() = default;
  /// Some of them can be read once progress() may move something. Constant; any thread.
  virtual std::span<const int> descriptors() const noexcept = 0;
  enum class Next : std::uint8_t {
    sleep,       ///< From here on the descriptors show what comes.
    look_later,  ///< What is awaited will not show there.
    drive        ///< Something has come.
  };
  /// What a thread may do that has nothing to drive: to sleep it calls this, then progress(), and
  /// sleeps if that was in vain. Forgets what the descriptors show of what has come.
  virtual Next next() noexcept = 0;
};

/// Tagged messages, matched by (sender, tag), in order for equal tags and in any order otherwise.
/// Not thread-safe: callers hold their context's token. Memory belongs to the transport while
/// posted.
class MessageTransport {
 public:
  virtual ~MessageTransport() = default;
  virtual const char* name() const = 0;
  /// This rank's address, to be handed to every peer at joining.
  virtual Blob address() = 0;
  /// Every rank's address by rank; empty for ranks that this transport is not to reach.
  virtual void connect(std::span<const Blob> addresses) = 0;
  /// It may be kept back for others that are sent next, until flush() or progress().
  virtual void send(MessageRequest& request, int peer, std::uint64_t tag,
                    std::span<const std::byte> data) = 0;
  /// No more is sent for now. Cost: little where nothing was kept back.
  virtual void flush() noexcept {}
  virtual void recv(MessageRequest& request, int peer, std::uint64_t tag,
                    std::span<std::byte> data) = 0;
  /// Bytes of the first message of (peer, tag) that has come, or been announced, before a receive
  /// asked for it; nothing if there is none yet. Of one of exact_bytes or more, perhaps not all are
  /// counted. The next receive of (peer, tag) gets it.
  virtual std::optional<std::size_t> probe(int peer, std::uint64_t tag) noexcept = 0;
  /// The peers, ascending, of which probe() may find something: of all others nothing has come that
  /// no receive asked for. Nothing: this transport cannot tell. Valid until it is called again.
  virtual std::optional<std::span<const int>> unasked() noexcept { return std::nullopt; }
  /// Drives everything in flight; returns whether anything moved. Never blocks, never throws.
  virtual bool progress() noexcept = 0;
  /// Null if this transport has none: who waits for it looks from time to time.
  virtual NewsDescriptors* news() noexcept = 0;
  /// Whether what has come from a rank stays to be received once that rank has closed its
  /// transport.
  virtual bool keeps_what_came() const noexcept { return true; }
  /// Whether messages that are never received hold up none that come behind them, even once their
  /// sends were withdrawn. Otherwise a communicator that fails takes along all that use this.
  virtual bool drops_unreceived() const noexcept { return false; }
  /// Of a transport that drops_unreceived(): no receive asks for messages of this communicator any
  /// more, nor of another whose tags have the same number. Those that have come, or will come, are
  /// dropped.
  virtual void forget(std::uint64_t /*communicator*/) noexcept {}
  /// Withdraws a posted request. On return its memory is no longer touched; state is failed or
  /// done. What its peer has sent to a receive, or yet sends as it does not know, may be lost: no
  /// communicator goes on whose receives are withdrawn.
  virtual void cancel(MessageRequest& request) noexcept = 0;
};

}  // namespace sprat::comm
