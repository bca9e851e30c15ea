// Direct gather: every part goes straight to the root.
//
// Ranks of the root's host share their parts, and the root pulls them. The others send theirs,
// straight to where they belong in the root's output. Nobody passes a part on: all of them have to
// enter the root's host anyway.
//
// Cost: 1 round; the root receives P-1 parts. Use: always.
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

// In place, the root's part lies at its block, which no peer reads.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const Operand part = input_of(p, p.rank);
  if (p.rank != p.root) {
    if (p.grouping->together(p.rank, p.root)) {
      plan.share(part);
      plan.signal();
    } else {
      plan.send(p.root, part);
    }
    return;
  }
  for (int rank : local_ranks_peers_first(p)) {
    plan.copy(input_of(p, rank), output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
  }
  for (int rank : remote_ranks(p)) {
    plan.recv(rank, output_of(p, p.rank, rank));
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const std::size_t part_bytes = p.count * size_of(p.input);
  if (p.rank != p.root) {
    const bool far = !p.grouping->together(p.rank, p.root);
    return {.rounds = far ? 1 : 0, .bytes_sent = far ? part_bytes : 0};
  }
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  return {.rounds = p.ranks() > 1 ? 1 : 0,
          .bytes_received = remote * part_bytes,
          .bytes_pulled = (local - 1) * part_bytes};
}

}  // namespace

extern const Algorithm gather_direct = {
    .collective = Collective::gather,
    .name = "direct",
    .summary = "Every part straight to the root.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
