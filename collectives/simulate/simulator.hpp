// Runs the plans of all ranks of a problem in virtual time on a machine of the table: the real
// planner, thousands of ranks, one thread, no clock.
//
// The model. A rank has a core and a link, a host has rails. Each serves one thing at a time, links
// and rails in the order of coming, and what is not said here costs nothing.
// - The core copies and reduces; of what it could do it does what comes first in the plan. A copy
//   takes its bytes over copy_GBps, or over pull_GBps where they are a peer's. A reduction reads
//   each source like a copy and adds each but the first over add_GBps.
// - What is read of a peer also occupies the peer's link, for its bytes over link_GBps: readers of
//   one rank's memory share it.
// - A signal is seen signal_us after it is given. Sharing is free, as in shared memory; a snapshot
//   is a copy.
// - A message takes its sender's rail, then its receiver's, each for message_us plus its bytes over
//   the rail's rate; its first byte is wire_us under way. Rails send and receive at once, and hold
//   a message that meets another. Ranks share a host's rails evenly in order; where there are more
//   rails than ranks a rank stripes every message over its own. A send is complete when the last
//   byte has left, a receive when it has come, whether or not the receive had been reached.
// - Messages inside a host (exchanges) are seen like signals and copied by the receiver.
#pragma once

#include <functional>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/problem.hpp"
#include "collectives/simulate/machine.hpp"

namespace sprat::collectives {

/// What a simulation took, in seconds.
struct Simulation {
  double seconds = 0;  ///< Until the last rank's last step.
  /// How long the busiest of each kind was at work.
  double rail = 0, link = 0, core = 0;

  /// "rail", "link" or "core", whichever worked longest; "latency" if all three
  /// together worked for less than half of the time.
  const char* limit() const;
};

/// A step, while it occupied what carries it out.
struct Span {
  int rank = 0;
  Verb verb = Verb::copy;
  int peer = -1;  ///< Whom it read from or wrote to; -1: nobody, or several.
  double begin = 0, end = 0;
};

/// Runs every rank's plan to its end. `observe` sees copies, reductions and messages as they end.
/// Memory: some 30 bytes a step. Throws Error{invalid_argument} if the algorithm does not fit,
/// Error{internal} that names a step if the plans wait for each other.
Simulation simulate(const std::vector<Problem>& each, const Algorithm& algorithm,
                    const Machine& machine, const std::function<void(const Span&)>& observe = {});
/// The problem as each rank has it; not of exchanges, where each rank knows only its own part.
Simulation simulate(const Problem& problem, const Algorithm& algorithm, const Machine& machine);

}  // namespace sprat::collectives
