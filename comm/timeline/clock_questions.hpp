// How a host's clock stands to rank 0's: the questions of clock_rounds, over whatever carries them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "comm/timeline/clock_fit.hpp"

namespace sprat::comm::timeline {

/// A time of rank 0's clock, and how wrong it may be; nanoseconds.
using ClockAnswer = std::array<std::int64_t, 2>;

/// Messages between one rank of each host, by the host's number. Both block.
struct ClockLine {
  std::function<void(int host, const ClockAnswer& told)> send;
  std::function<ClockAnswer(int host)> receive;
  std::function<std::int64_t()> now;  ///< Nanoseconds of the own clock.
};

/// How wrong a reading may be at `own_ns`, if nothing was measured since: clocks of two machines
/// may part by 100 ppm, as crystals keep to 50.
std::int64_t error_at(const ClockReading& reading, std::int64_t own_ns);

/// Called by one rank of each host, `host` among `hosts`.
ClockReading ask_for_clock(const ClockLine& line, int host, int hosts);

}  // namespace sprat::comm::timeline
