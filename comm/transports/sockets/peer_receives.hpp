// Which receives are known to wait at a peer, so that a message for one of them needs not be
// announced: it begins a round trip earlier, whatever the peer's cores do, and no grant waits
// behind what the peer sends itself. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sprat::comm::sockets {

/// A receive that its rank has told of.
struct PeerReceive {
  std::uint64_t tag = 0;
  std::size_t bytes = 0;   ///< Of its buffer.
  std::uint32_t seen = 0;  ///< Messages of this rank's that had come when it was posted.
};

/// Remembers a few, and of this rank's messages the last: what it has forgotten is announced.
class PeerReceives {
 public:
  /// The peer says so. False if it has seen more than was sent.
  [[nodiscard]] bool note(const PeerReceive& receive) noexcept;
  /// Whether a receive waits for the next message if that has this tag and so many bytes: then it
  /// is that message's. A receive that an earlier message may have taken counts for none.
  bool take(std::uint64_t tag, std::size_t bytes) noexcept;
  /// The next message goes; `taken` if take() found its receive. A message that is withdrawn and so
  /// never comes still counts: it only lets some receives look as if they were taken.
  void sent(std::uint64_t tag, bool taken) noexcept;

 private:
  /// Each costs memory for each peer. Pipelines have a receive or two under way to a neighbour.
  static constexpr std::size_t most_receives = 16, most_messages = 32;
  static constexpr std::uint64_t no_tag = ~std::uint64_t{0};

  bool may_be_taken(const PeerReceive& receive) const noexcept;
  void forget(std::size_t at) noexcept;

  std::array<PeerReceive, most_receives> receives_{};  ///< In order of arrival.
  std::size_t count_ = 0;
  /// Tags of the last messages, by number; no_tag for one that had a receive of its own.
  std::array<std::uint64_t, most_messages> tags_{};
  std::uint32_t sent_ = 0;
};

}  // namespace sprat::comm::sockets
