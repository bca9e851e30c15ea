// Which algorithm is the fastest on a machine, as the simulator has it; and what others' ring
// takes.
#pragma once

#include <optional>
#include <vector>

#include "collectives/simulate/simulator.hpp"

namespace sprat::collectives {

struct Candidate {
  const Algorithm* algorithm = nullptr;
  Simulation simulation;
};

/// Every algorithm that fits, fastest first.
std::vector<Candidate> by_speed(const Problem& problem, const Machine& machine);

/// Closed form of a ring over all ranks in the order of hosts, as NCCL has it: as many rings as
/// rails, each with its share of the bytes. Every part makes P-1 hops, all_reduce's twice: one
/// between hosts for each host it leaves, the others inside; bytes flow at the slowest hop's rate.
/// One rank on each host: (P-1)(a + nb/P) and (P-1)/P ng. Null where nothing is gathered or reduced
/// by all.
std::optional<double> flat_ring_seconds(const Problem& problem, const Machine& machine);

}  // namespace sprat::collectives
