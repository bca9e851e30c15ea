// Pairwise reduce-scatter: in round k, a message to rank+k and one from rank-k; then one reduction
// of all. Cost: up to P-1 rounds; every contribution travels unreduced. Use: one rank per host and
// large blocks, where many senders at once would collide.
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts; }

// In place, the output is block `rank` of the input, which no peer reads.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const Grouping& grouping = *p.grouping;
  const std::vector<int> local = local_ranks(p);
  for (int rank : local) {
    if (rank != p.rank) plan.share(input_of(p, p.rank, rank));
  }
  if (local.size() > 1) plan.signal();
  std::vector<Operand> leaving(p.ranks());
  for (int rank : remote_ranks(p)) leaving[rank] = widened(p, plan, input_of(p, p.rank, rank));
  std::vector<Source> terms;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    terms.push_back({.from = input_of(p, rank, p.rank), .covers = {rank, rank + 1}});
  }
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int to = (p.rank + distance) % p.ranks();
    const int from = (p.rank - distance + p.ranks()) % p.ranks();
    plan.next_round();
    if (!grouping.together(p.rank, to)) plan.send(to, leaving[to]);
    if (grouping.together(p.rank, from)) continue;
    terms[from].from = plan.scratch(p.count);
    plan.recv(from, terms[from].from);
  }
  plan.next_round();
  plan.reduce(terms, output_of(p, p.rank), local.size() > 1 ? 1 : 0);
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t message_bytes = p.count * size_of(p.accumulator());
  return {.rounds = pairwise_rounds(p) + (local > 1 ? 1 : 0),
          .bytes_sent = remote * message_bytes,
          .bytes_received = remote * message_bytes,
          .bytes_pulled = (local - 1) * p.count * size_of(p.input)};
}

}  // namespace

extern const Algorithm reduce_scatter_pairwise = {
    .collective = Collective::reduce_scatter,
    .name = "pairwise",
    .summary = "Messages in P-1 rounds, one partner each: one rank per host, large blocks.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
