// A simulated schedule as lines of text: a line for each rank, from left to right in time.
#pragma once

#include <string>
#include <vector>

#include "mp/simulate.hpp"

namespace sprat::mp {

/// Computation only, at most `columns` wide, with a line that explains the letters that occur. Each
/// span begins with its letter and micro-batch, as far as they fit; dots are idle time.
std::string draw(const Schedule& schedule, const SimulatedSchedule& made, int columns = 132);

/// By stage: 0 for the first that its rank holds, 1 for the second.
std::vector<int> chunks_of(const Schedule& schedule);

}  // namespace sprat::mp
