// Reductions over hosts in a ring: a partial goes from each host to the next and grows on its way,
// so that every host sends one for each portion, whatever the placement.
#pragma once

#include <vector>

#include "collectives/patterns/hierarchical.hpp"
#include "collectives/plan/plan.hpp"

namespace sprat::collectives {

/// Ends with problem.rank's portion reduced into `result`, chunk by chunk: a partial goes once
/// round the ring from the host after the owner's, and each host's carrier adds its ranks'
/// contributions. The order is a chain of hosts. Signals once, if there are peers. Takes the first
/// trip of `exchange`.
Reduced reduce_around(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                      const Operand& result, PairwiseExchange& exchange);

/// Bytes of an element of the widest message that reduce_around() sends, on whichever host.
std::size_t widest_of_reducing_around(const Problem& problem);

/// What reduce_around() costs.
Cost cost_of_reducing_around(const Problem& problem, const std::vector<Portion>& portions);

/// Its rounds, for what follows it.
Chains chains_around(const Problem& problem, const std::vector<Portion>& portions);

}  // namespace sprat::collectives
