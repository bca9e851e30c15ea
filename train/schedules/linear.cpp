// A straight line.
#include "train/schedule.hpp"

namespace sprat::train {

extern const ScheduleKind linear_schedule;
const ScheduleKind linear_schedule = {.name = "linear",
                                      .share = [](double done) { return 1.0 - done; }};

}  // namespace sprat::train
