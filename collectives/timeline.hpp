// The timeline of a whole job: how clocks stand to each other, and who collects what ranks noted.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/timeline/clock_fit.hpp"
#include "sprat/communicator.hpp"

namespace sprat::collectives {

/// Above that a trace's bound is said, for collectives of small messages take no longer.
constexpr std::int64_t tolerable_clock_error_ns = 20'000;

/// Collective. How this rank's clock stands to rank 0's: the first rank of each host asks for all
/// of its host, who have one clock, in rounds that grow by the logarithm of the number of hosts.
/// `now`: nanoseconds of the own clock.
/// Messages of `ranks` carry it; none of its users' are under way.
comm::timeline::ClockReading measure_clock(Communicator& ranks,
                                           const std::function<std::int64_t()>& now);

/// Collective, of a world that was just made: notes how clocks stand, if its ranks keep a timeline.
Communicator with_clock(Communicator world);

}  // namespace sprat::collectives
