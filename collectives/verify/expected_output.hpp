// What every collective's output is to hold, as symbols.
#pragma once

#include "collectives/plan/problem.hpp"
#include "collectives/verify/symbols.hpp"

namespace sprat::collectives {

/// What a rank's output block holds in the end. undefined for a barrier.
Expression result_of(Symbols& symbols, const Problem& problem, int rank, int block);

}  // namespace sprat::collectives
