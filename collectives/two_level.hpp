// Reductions over hosts in two levels: partials inside hosts, one owner for each portion between
// them.
#pragma once

#include <vector>

#include "collectives/legs.hpp"
#include "collectives/plan.hpp"
#include "collectives/problem.hpp"

namespace sprat::collectives {

/// What one rank owns of a reduction's result: a slice of a block of everybody's input.
/// Portions are indexed by their owners; empty ones move nothing.
struct Portion {
  int block = 0;
  Slice slice;
};

/// Legs in which portions go round the hosts `trips` times, the same on every rank.
Legs legs_of(const Problem& problem, const std::vector<Portion>& portions, int trips);

/// Where a reduction's steps are, for those that follow it.
struct Reduced {
  std::uint32_t result = 0;  ///< The step that completes chunk 0 of the result; the others follow.
  /// By owner, then chunk: the last steps that read that piece of this rank's input for others.
  std::vector<std::vector<IndexRange>> left;
};

/// Ends with problem.rank's portion reduced into `result`, chunk by chunk. On every host the
/// portion's carrier reduces the host's contributions to one partial for each of its canonical
/// subtrees and sends them to the owner. Signals once. On this host only the carrier reads a
/// portion of any input. Takes the first trip of `legs`.
Reduced reduce_to_owners(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                         const Operand& result, Legs& legs);

/// What reduce_to_owners() costs.
Cost cost_of_reducing(const Problem& problem, const std::vector<Portion>& portions);

}  // namespace sprat::collectives
