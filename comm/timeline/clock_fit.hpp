// What to add to a rank's clock for rank 0's: an offset and a drift, from two measurements.
//
// A clock is measured by questions. Rank 0 looked at its own at some time between question and
// answer, so taking the middle is wrong by half of that time at most, whatever the wire did and
// however unlike its two ways are: the fastest answer says it best (Cristian 1989, "Probabilistic
// clock synchronization").
#pragma once

#include <cstdint>
#include <span>

namespace sprat::comm::timeline {

/// Nanoseconds: asked and answered by the own clock, told by rank 0's.
struct RoundTrip {
  std::int64_t asked = 0, told = 0, answered = 0;
};

/// At `at` of the own clock, rank 0's shows `at + offset`, but for `error` at most.
struct ClockReading {
  std::int64_t at = 0, offset = 0, error = 0;
  friend bool operator==(const ClockReading&, const ClockReading&) = default;
};

/// Of the round trip that took least. At least one.
ClockReading read_clock(std::span<const RoundTrip> trips);

/// Two measurements, at the beginning and at the end of what is shown. A drift that stays the same
/// is taken out by the line through them.
struct ClockFit {
  ClockReading begin = {}, end = {};

  /// What rank 0's clock showed when the own one showed `own_ns`.
  std::int64_t aligned(std::int64_t own_ns) const;
  /// How far from the truth that may be between the two.
  std::int64_t error() const;
};

}  // namespace sprat::comm::timeline
