// What one rank keeps of a large job: a real Context and a real communicator, whose other ranks are
// only words.
#pragma once

#include <cstddef>

namespace sprat::simulation {

/// Bytes on the heap of one rank once it has joined, beyond those of a job of two ranks.
struct HeldByRank {
  double context = 0;       ///< Of the job.
  double communicator = 0;  ///< Of a communicator of all ranks, that has not been used yet.
};

/// Of hosts with so many ranks each; this one is alone on its own.
HeldByRank measure_held_by_rank(int hosts, int ranks_per_host);

}  // namespace sprat::simulation
