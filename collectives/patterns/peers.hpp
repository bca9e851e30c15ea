// Who a rank deals with: on its own host, and one rank of every other.
#pragma once

#include <vector>

#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// Ranks of this rank's host, ascending from it and round again; itself first.
std::vector<int> local_ranks(const Problem& problem);
/// The same with itself last: the order in which to read blocks of each. Peers may go on once
/// theirs are read, and where one is late, a rank's own is there to be copied.
std::vector<int> local_ranks_peers_first(const Problem& problem);
/// Ranks of other hosts: hosts from the next one on and round again, and of each its ranks from
/// this rank's position on, so that neither hosts nor the ranks of a host all meet at one.
std::vector<int> remote_ranks(const Problem& problem);

/// The rank of `host` that handles what `owner` owns: the owner on its own host, elsewhere one that
/// spreads owners evenly and keeps equal local positions together where hosts are equal blocks.
int carrier(const Grouping& grouping, int host, int owner);

}  // namespace sprat::collectives
