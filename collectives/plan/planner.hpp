// From a problem to a plan.
#pragma once

#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"
#include "collectives/plan/tuning.hpp"

namespace sprat::collectives {

/// A call of no elements is a barrier, so that it too shows who calls something else. Not where
/// ranks do not all know that there are none.
bool only_meets(const Problem& problem);

/// The algorithm of the first rule that applies and whose algorithm fits. Does not depend on
/// problem.rank, so all ranks choose alike. Throws Error{internal} if there is none.
const Algorithm& choose(const Problem& problem, const Rules& rules);

/// What problem.rank does. Throws Error{invalid_argument} if the algorithm does not fit.
Plan make_plan(const Problem& problem, const Algorithm& algorithm);

/// The problem as each rank has it, and plans for every rank by one algorithm.
std::vector<Problem> for_each_rank(const Problem& problem);
std::vector<Plan> make_plans(const std::vector<Problem>& problems, const Algorithm& algorithm);
std::vector<Plan> make_plans(const Problem& problem, const Algorithm& algorithm);

}  // namespace sprat::collectives
