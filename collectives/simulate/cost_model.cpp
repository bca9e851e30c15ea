// Algorithms by speed, and the closed form of a ring over all ranks.
#include "collectives/simulate/cost_model.hpp"

#include <algorithm>

namespace sprat::collectives {

std::vector<Candidate> by_speed(const Problem& problem, const Machine& machine) {
  std::vector<Candidate> candidates;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (algorithm->collective != problem.collective || !algorithm->fits(problem)) {
      continue;
    }
    candidates.push_back({algorithm, simulate(problem, *algorithm, machine)});
  }
  // Stable, so that of equals the first of the table wins on every machine.
  std::ranges::stable_sort(candidates, {}, [](const Candidate& c) { return c.simulation.seconds; });
  return candidates;
}

std::optional<double> flat_ring_seconds(const Problem& problem, const Machine& machine) {
  const Collective what = problem.collective;
  const bool scatters = what == Collective::reduce_scatter || what == Collective::all_reduce;
  const bool gathers = what == Collective::all_gather || what == Collective::all_reduce;
  if (!scatters && !gathers) {
    return std::nullopt;
  }
  constexpr double us = 1e-6, GBps = 1e9;
  const int ranks = problem.ranks(), hosts = problem.grouping->hosts();
  const int hops = ranks - 1;
  // Of all hops around the ring one leaves each host; a part does not make the one that would close
  // the ring, so it is a share of them, rounded up.
  const int between = hosts == 1 ? 0 : (hops * hosts + ranks - 1) / ranks;
  const double latency =
      between * (machine.wire_us + machine.message_us) + (hops - between) * machine.signal_us;
  const double rails = machine.rails * machine.rail_GBps;
  const double rate = hosts == 1        ? machine.pull_GBps
                      : hops == between ? rails
                                        : std::min(rails, machine.pull_GBps);
  const double buffer = static_cast<double>(problem.payload_bytes());
  const double bytes = hops * (buffer / ranks);
  const int passes = (scatters ? 1 : 0) + (gathers ? 1 : 0);
  return passes * (latency * us + bytes / (rate * GBps)) +
         (scatters ? bytes / (machine.add_GBps * GBps) : 0);
}

}  // namespace sprat::collectives
