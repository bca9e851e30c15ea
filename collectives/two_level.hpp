// Reductions over hosts in two levels: partials inside hosts, one owner for each portion between
// them.
#pragma once

#include <vector>

#include "collectives/plan.hpp"
#include "collectives/problem.hpp"

namespace sprat::collectives {

/// What one rank owns of a reduction's result: a slice of a block of everybody's input.
/// Portions are indexed by their owners; empty ones move nothing.
struct Portion {
  int block = 0;
  Slice slice;
};

/// Ends with problem.rank's portion reduced into `result`. On every host the portion's carrier
/// reduces the host's contributions to one partial for each of its canonical subtrees and sends
/// them to the owner. Signals once. On this host only the carrier reads a portion of any input, and
/// is done with it before the steps that follow.
void reduce_to_owners(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                      const Operand& result);

/// What reduce_to_owners() costs.
Cost cost_of_reducing(const Problem& problem, const std::vector<Portion>& portions);

}  // namespace sprat::collectives
