// Bruck's all-gather (Bruck, Ho, Kipnis, Upfal, Weathersby 1997): each rank passes on all that it
// has to a rank twice as far away each time.
// Cost: ceil(lg P) messages in a row, of 1, 2, 4, ... parts. Use: more than two hosts, a rank each,
// and small payloads, where a message costs more than its bytes.
#include <algorithm>

#include "collectives/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts && p.grouping->hosts() == p.ranks(); }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const int ranks = p.ranks();
  // The k-th piece is the part of the k-th rank from this one on.
  const Operand parts = plan.scratch(p.count * static_cast<std::size_t>(ranks));
  const auto pieces = [&](int first, int count) {
    return piece_of(parts, {p.count * static_cast<std::size_t>(first),
                            p.count * static_cast<std::size_t>(count)});
  };
  plan.copy(input_of(p, p.rank), pieces(0, 1));
  for (int have = 1; have < ranks; have *= 2) {
    const int more = std::min(have, ranks - have);
    plan.next_round();
    plan.send((p.rank + ranks - have) % ranks, pieces(0, more));
    plan.recv((p.rank + have) % ranks, pieces(have, more));
  }
  plan.next_round();
  for (int distance = 0; distance < ranks; ++distance) {
    plan.copy(pieces(distance, 1), output_of(p, p.rank, (p.rank + distance) % ranks));
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const std::size_t part_bytes = p.count * size_of(p.input);
  Cost cost;
  for (int have = 1; have < p.ranks(); have *= 2) {
    const auto more = static_cast<std::size_t>(std::min(have, p.ranks() - have));
    ++cost.rounds;
    cost.bytes_sent += more * part_bytes;
    cost.bytes_received += more * part_bytes;
  }
  return cost;
}

}  // namespace

extern const Algorithm all_gather_bruck = {
    .collective = Collective::all_gather,
    .name = "bruck",
    .summary = "Twice as many parts to a rank twice as far: several hosts, small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
