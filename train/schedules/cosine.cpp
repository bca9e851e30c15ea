// Half a cosine: slow at both ends (Loshchilov and Hutter, arXiv:1608.03983, without restarts).
#include <cmath>
#include <numbers>

#include "train/schedule.hpp"

namespace sprat::train {

extern const ScheduleKind cosine_schedule;
const ScheduleKind cosine_schedule = {.name = "cosine", .share = [](double done) {
                                        return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
                                      }};

}  // namespace sprat::train
