// Direct all-to-all: every block goes from its sender to its receiver.
//
// Ranks of one host pull their blocks from each other's shared inputs. Between hosts it is the
// pairwise exchange of long messages (Thakur, Rabenseifner, Gropp 2005): at distance d each rank
// sends to rank+d and receives from rank-d, so that at any time nobody is sent to by two. All
// receives are posted first; a send goes behind the receives of some turns before it, and so no
// faster than they.
//
// Cost: 1 round; each rank sends and receives the blocks of other hosts' ranks once. Use: always.
#include "collectives/patterns/pairwise_exchange.hpp"
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void exchange_blocks(const Problem& p, Plan& plan) {
  const Grouping& grouping = *p.grouping;
  PairwiseExchange exchange(*p.grouping, p.ranks() - 1, p.count * size_of(p.input));
  const auto chunk_of = [&](const Operand& block, int chunk) {
    return piece_of(block, slice(p.count, exchange.chunks(), chunk));
  };
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int from = (p.rank + p.ranks() - distance) % p.ranks();
    for (int chunk = 0; !grouping.together(p.rank, from) && chunk < exchange.chunks(); ++chunk) {
      const AddedStep recv = plan.recv(from, chunk_of(output_of(p, p.rank, from), chunk));
      exchange.arrives(distance, chunk, recv.alone());
    }
  }
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int to = (p.rank + distance) % p.ranks();
    for (int chunk = 0; !grouping.together(p.rank, to) && chunk < exchange.chunks(); ++chunk) {
      plan.send(to, chunk_of(input_of(p, p.rank, to), chunk))
          .behind(exchange.behind(distance, chunk));
    }
  }
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<int> local = local_ranks(p);
  for (int rank : local) {
    if (rank != p.rank) {
      plan.share(input_of(p, p.rank, rank));
    }
  }
  if (local.size() > 1) {
    plan.signal();
  }
  plan.next_round();
  for (int rank : local_ranks_peers_first(p)) {
    plan.copy(input_of(p, rank, p.rank), output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
  }
  plan.next_lane();
  exchange_blocks(p, plan);
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
    .summary = "Every block straight to its rank.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
