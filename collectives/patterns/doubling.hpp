// Recursive doubling over hosts (Thakur, Rabenseifner, Gropp 2005, for any number of them): at each
// node of the canonical tree the hosts of both halves exchange their partials.
#pragma once

#include <vector>

#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// Every host's ranks are one node of the canonical tree.
bool one_node_a_host(const Grouping& grouping);

/// The rank that deals with other hosts.
int leader_of(const Grouping& grouping, int host);

/// A node above a host, as this host meets it.
struct DoublingStep {
  RankRange mine, theirs;  ///< The halves.
  int source = 0;          ///< Leader of the other half whose partial this host gets.
  std::vector<int> sinks;  ///< Leaders of the other half that get this host's.
};

/// Of problem.rank's host, from its own node up to the root. Needs one_node_a_host().
std::vector<DoublingStep> doubling_steps_of(const Problem& problem);

/// Where the partial of both halves goes that is not the last: over the other half's, if that lies
/// in scratch.
Operand joint_of(Plan& plan, const Operand& theirs);

/// A step that reduces both halves' partials.
void join_halves(Plan& plan, const DoublingStep& doubling_step, const Operand& mine,
                 const Operand& theirs, const Operand& to, std::uint32_t needs = 0);

}  // namespace sprat::collectives
