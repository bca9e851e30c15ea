// Direct all-to-all: every block goes from its sender to its receiver, all at once.
// Cost: 1 round; each rank sends and receives P-1 blocks.
// Use: one host; between hosts, small payloads or few ranks.
#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const std::vector<int> local = local_ranks(p);
  for (int rank : local) {
    if (rank != p.rank) plan.share(input_of(p, p.rank, rank));
  }
  if (local.size() > 1) plan.signal();
  plan.next_round();
  for (int rank : local) {
    plan.copy(input_of(p, rank, p.rank), output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
  }
  plan.next_lane();
  for (int rank : remote_ranks(p)) {
    plan.send(rank, input_of(p, p.rank, rank));
    plan.recv(rank, output_of(p, p.rank, rank));
  }
}

Cost cost(const Problem& p) {
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t block_bytes = p.count * size_of(p.input);
  return {.rounds = p.ranks() > 1 && p.count > 0 ? 1 : 0,
          .bytes_sent = remote * block_bytes,
          .bytes_received = remote * block_bytes,
          .bytes_pulled = (local - 1) * block_bytes};
}

}  // namespace

extern const Algorithm all_to_all_direct = {
    .collective = Collective::all_to_all,
    .name = "direct",
    .summary = "Every block straight to its rank, all at once: one host, or small payloads.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
