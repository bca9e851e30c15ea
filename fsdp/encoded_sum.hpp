// Sums over one axis of numbers that travel as encoded blocks: an exchange in which each rank gets
// everybody's blocks of its part, a sum in f32, and for an all-reduce the sums' blocks back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "fsdp/axis_communicator.hpp"

namespace sprat::fsdp {

class EncodedAllReduce;

/// What one rank has lost so far and adds to what it sends next (error feedback); empty: nothing is
/// kept.
struct Residuals {
  std::span<float> sent;      ///< Of its own numbers, as many as a sum has.
  std::span<float> returned;  ///< Of the sums it gives back, as many as the largest part has.
};

/// The sums of one axis. Each ends with the same bits on every rank, the canonical tree's over what
/// the blocks of all ranks, its own too, decode to. One thread at a time.
class EncodedSums {
 public:
  /// `exchanges` and `replies` are of the same ranks and different communicators: an exchange may
  /// begin on one rank before, on another after a reply to an earlier one.
  EncodedSums(AxisCommunicator& exchanges, AxisCommunicator& replies, DType wire)
      : exchanges_(exchanges), replies_(replies), wire_(wire) {}

  /// part <- this rank's block of the sum; whole.size() is ranks * part.size(), whole blocks each.
  /// `whole` is the caller's again at once, and may hold `part`. `staging` has
  /// EncodedParts::exchange_bytes(). Adds to `sent` what this rank sends to others.
  Pending reduce_scatter(std::span<const float> whole, std::span<float> part, Residuals residuals,
                         std::span<std::byte> staging, std::uint64_t& sent);
  /// values <- their sum. Sums travel back as blocks too, so every rank has what those decode to.
  /// Nobody else writes `values` before it has ended.
  Pending all_reduce(std::span<float> values, Residuals residuals, std::span<std::byte> staging,
                     std::uint64_t& sent);
  /// Sends back the sums of those all-reduces whose exchanges have ended, oldest first.
  void advance();

 private:
  friend class EncodedAllReduce;
  /// Sends back the sums of `last` and of all before it, in the order in which they began. It is
  /// the same order on every rank, whenever each of them comes to it.
  void reply_through(const EncodedAllReduce& last);
  void encode_all(std::span<const float> values, std::span<float> residual,
                  std::span<std::byte> to) const;
  /// Starts to send each rank its part of `sent`, and to receive this rank's part of everybody's.
  Pending exchange(std::size_t count, std::span<std::byte> staging, std::uint64_t& sent);

  AxisCommunicator& exchanges_;
  AxisCommunicator& replies_;
  DType wire_;
  std::deque<EncodedAllReduce*> unanswered_;  // all-reduces whose sums are not sent back yet
};

}  // namespace sprat::fsdp
