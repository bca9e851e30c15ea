// What ran, in the form of what was planned.
#pragma once

#include <vector>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// What ranks measured of one step of a schedule with messages, by rank and action, on one clock. A
/// receive's span is the wait for its message, a send's the time until its memory was free again;
/// `held` are seconds in which that was waited for.
struct MeasuredRank {
  std::vector<TimeSpan> spans;
  std::vector<double> held;
};

/// Times from the first start. Exposed communication is the part of waits for messages in which
/// these were under way, and all of `held`. What stages wait for inside (gathers, loads) is not
/// known here. Bytes are not, either.
Timeline timeline_of(const Schedule& schedule, std::vector<MeasuredRank> measured);

/// From spans and busy times: the makespan, and how much of it ranks stood idle.
void add_bubbles(Timeline& timeline);

}  // namespace sprat::mp
