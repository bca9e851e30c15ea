// Messages between ranks that share memory, through one ring a pair and direction.
//
// A message of up to 16 KiB travels whole and may arrive before it is asked for. A longer one is
// announced, and its bytes follow once the peer's receive matches, straight from the sender's
// memory through the ring into the receiver's: so long messages need no memory in between and
// cannot block the short ones behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/transports/shm/frame_ring.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm {

class ShmLink;
struct UnexpectedRules;

/// Where the rings of one rank lie.
struct ShmRingOptions {
  int rank = 0;
  /// The ranks that share memory, this one among them, in the order all of them use.
  std::vector<int> ranks;
  /// ShmRing::bytes_needed(ranks.size()) bytes, aligned to 64 and zeroed before any peer maps them.
  /// Written by this rank only.
  std::span<std::byte> mine;
  /// The same piece of each of `ranks`, in that order, as mapped here; never written. For this rank
  /// itself: `mine`.
  std::vector<const std::byte*> memory;
  /// Bytes of unexpected messages kept for one peer. Beyond them its ring is not read any further
  /// until a receive matches what comes next.
  std::size_t unexpected_bytes = std::size_t{64} << 20;
  /// Called by progress() with each peer that may wait for what has moved. May be empty.
  std::function<void(int peer)> ring = {};
};

/// Requests of a peer outside `ranks` fail with EHOSTUNREACH, of a peer whose ring holds nonsense
/// with EPROTO, cancelled ones with ECANCELED. A request destroyed with its transport stays
/// `posted`.
class ShmRing final : public MessageTransport {
 public:
  static std::size_t bytes_needed(std::size_t ranks) { return ranks * sizeof(FrameLane); }

  explicit ShmRing(ShmRingOptions options);
  ~ShmRing() override;
  ShmRing(const ShmRing&) = delete;
  ShmRing& operator=(const ShmRing&) = delete;

  const char* name() const override { return "shm"; }
  /// The layout of the rings, which must be the same on both ends.
  Blob address() override;
  /// Throws Error{mismatch} if a peer of `ranks` lays its rings out differently.
  void connect(std::span<const Blob> addresses) override;
  void send(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<const std::byte> data) override;
  void recv(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<std::byte> data) override;
  std::optional<std::size_t> probe(int peer, std::uint64_t tag) noexcept override;
  std::optional<std::span<const int>> unasked() noexcept override;
  bool progress() noexcept override;
  NewsDescriptors* news() noexcept override { return nullptr; }  ///< Peers ring.
  void cancel(MessageRequest& request) noexcept override;
  bool drops_unreceived() const noexcept override { return true; }
  void forget(std::uint64_t communicator) noexcept override;

 private:
  ShmLink* link_to(int peer);

  ShmRingOptions options_;
  std::unique_ptr<UnexpectedRules> unexpected_;  ///< Outlives the links.
  std::vector<std::unique_ptr<ShmLink>> links_;  ///< By position in options_.ranks.
  std::vector<int> position_;                    ///< By rank; -1: does not share memory.
  std::vector<int> unasked_;                     ///< What unasked() returned.
};

}  // namespace sprat::comm
