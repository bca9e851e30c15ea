// Proves plans by running them on symbols: complete, free of deadlock and races, and canonical.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/plan.hpp"
#include "collectives/problem.hpp"

namespace sprat::collectives {

/// What is wrong with the plans of all ranks (plans[r] is rank r's) for `problem`, whose own rank
/// does not matter; empty if they are right:
/// - every step is well formed: its own rank's buffers are written, never the input; peers read are
/// on
///   the host, in shared ranges; messages go between hosts and agree in type and count;
/// - every step runs, even if a send ends only once its receive is posted, in any order that
///   `after`, `needs` and messages allow;
/// - whatever that order, every read finds the same value: of any two accesses to an element of
/// which
///   one writes, one happens before the other. This holds whether memory is private (a share
///   copies) or mapped (peers read it live), and where `in_place` says so, with the output over the
///   input;
/// - every output element is the collective's result, reductions as exactly the canonical tree.
/// A broadcast is always in place; an all-to-all never is, for its executor stages the input.
/// At most twenty lines.
std::vector<std::string> verify(const Problem& problem, const std::vector<Plan>& plans,
                                bool in_place);

/// Plans for every rank, by one algorithm.
std::vector<Plan> make_plans(const Problem& problem, const Algorithm& algorithm);

}  // namespace sprat::collectives
