// What drawings of schedules have in common.
#pragma once

#include <vector>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// By stage: 0 for the first that its rank holds, 1 for the second.
std::vector<int> chunks_of(const Schedule& schedule);

}  // namespace sprat::mp
