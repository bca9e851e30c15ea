#include "comm/timeline/clock_fit.hpp"

#include <algorithm>
#include <cmath>

namespace sprat::comm::timeline {

ClockReading read_clock(std::span<const RoundTrip> trips) {
  const auto best = std::ranges::min_element(
      trips, {}, [](const RoundTrip& trip) { return trip.answered - trip.asked; });
  const std::int64_t took = best->answered - best->asked, middle = best->asked + took / 2;
  // Rounded up, so that the bound holds to the nanosecond.
  return {.at = middle, .offset = best->told - middle, .error = (took + 1) / 2};
}

std::int64_t ClockFit::aligned(std::int64_t own_ns) const {
  const std::int64_t between = end.at - begin.at;
  if (between <= 0) {
    return own_ns + begin.offset;
  }
  // Offsets are kept whole, and only what they changed by is a fraction: a double has too few
  // digits for the sum of both.
  const double part = static_cast<double>(own_ns - begin.at) / static_cast<double>(between);
  const double drifted = part * static_cast<double>(end.offset - begin.offset);
  // Readings of foreign files may lie a nanosecond apart, and the line through them be as steep.
  constexpr double most = 1e18;
  return own_ns + begin.offset + std::llround(std::clamp(drifted, -most, most));
}

std::int64_t ClockFit::error() const { return std::max(begin.error, end.error); }

}  // namespace sprat::comm::timeline
