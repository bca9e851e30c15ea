// Proves plans by running them on symbols: complete, free of deadlock and races, and canonical.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/plan.hpp"
#include "collectives/plan/planner.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// What is wrong with the plans of all ranks (plans[r] is rank r's) for `problem`, whose own rank
/// does not matter; at most twenty lines, none if they are right:
///
/// - Every step is well formed. Ranks write their own buffers only, never the input, and read peers
///   of their host only, in shared ranges, once these have signalled. Messages go between hosts.
/// - Every step runs, even if a send ends only once its receive is posted. Both ends of a message
///   agree in type and count.
/// - Any order that `after`, `needs` and messages allow gives the same: of two accesses to an
///   element of which one writes, one happens before the other. This holds where memory is private
///   (peers see what a share copied) and where it is mapped (they read it live); with `in_place`,
///   where the output lies over the input.
/// - Every output element is the collective's result, a reduction's as exactly the canonical tree;
///   in plans whose order is `any`, with each contribution exactly once.
///
/// A broadcast is always in place; an all-to-all never is, for its executor stages the input.
std::vector<std::string> verify(const Problem& problem, const std::vector<Plan>& plans,
                                bool in_place);
/// The same where each rank knows its own counts only: problems[r] is rank r's.
std::vector<std::string> verify(const std::vector<Problem>& problems,
                                const std::vector<Plan>& plans, bool in_place);

}  // namespace sprat::collectives
