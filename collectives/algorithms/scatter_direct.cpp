// Direct scatter: every block goes straight from the root to its rank.
//
// The root shares the blocks of its own host's ranks, and these pull them. To the others it sends
// theirs. Nobody passes a block on: all of them have to leave the root's host anyway.
//
// Cost: 1 round; the root gives P-1 blocks. Use: always.
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
  if (p.rank != p.root) {
    if (p.grouping->together(p.rank, p.root)) {
      plan.copy(input_of(p, p.root, p.rank), output_of(p, p.rank), 1);
    } else {
      plan.recv(p.root, output_of(p, p.rank));
    }
    return;
  }
  for (int rank : local_ranks(p)) {
    if (rank != p.rank) {
      plan.share(input_of(p, p.rank, rank));
    }
  }
  if (local_ranks(p).size() > 1) {
    plan.signal();
  }
  for (int rank : remote_ranks(p)) {
    plan.send(rank, input_of(p, p.rank, rank));
  }
  plan.copy(input_of(p, p.rank, p.rank), output_of(p, p.rank));
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const std::size_t block_bytes = p.count * size_of(p.input);
  if (p.rank != p.root) {
    const bool far = !p.grouping->together(p.rank, p.root);
    return {.rounds = 1,
            .bytes_received = far ? block_bytes : 0,
            .bytes_pulled = far ? 0 : block_bytes};
  }
  const std::size_t remote = p.ranks() - local_ranks(p).size();
  return {.rounds = remote > 0 ? 1 : 0, .bytes_sent = remote * block_bytes};
}

}  // namespace

extern const Algorithm scatter_direct = {
    .collective = Collective::scatter,
    .name = "direct",
    .summary = "Every block straight from the root.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
