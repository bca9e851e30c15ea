// Pairwise all-to-all: in round k, a message to rank+k and one from rank-k; local blocks are
// pulled. Cost: up to P-1 rounds; each rank sends and receives the blocks of other hosts' ranks
// once. Use: several hosts and large blocks, where many senders at once would collide.
#include <algorithm>

#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const Grouping& grouping = *p.grouping;
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
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int to = (p.rank + distance) % p.ranks();
    const int from = (p.rank - distance + p.ranks()) % p.ranks();
    plan.next_round();
    if (!grouping.together(p.rank, to)) plan.send(to, input_of(p, p.rank, to));
    if (!grouping.together(p.rank, from)) plan.recv(from, output_of(p, p.rank, from));
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t block_bytes = p.count * size_of(p.input);
  const int local_rounds = local > 1 ? 1 : 0;
  return {.rounds = std::max(pairwise_rounds(p), local_rounds),
          .bytes_sent = remote * block_bytes,
          .bytes_received = remote * block_bytes,
          .bytes_pulled = (local - 1) * block_bytes};
}

}  // namespace

extern const Algorithm all_to_all_pairwise = {
    .collective = Collective::all_to_all,
    .name = "pairwise",
    .summary = "Messages in P-1 rounds, one partner each: several hosts, large blocks.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
