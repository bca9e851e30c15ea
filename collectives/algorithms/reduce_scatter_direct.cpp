// Direct reduce-scatter: each rank reduces its block straight from everybody's contribution.
//
// Every rank shares the blocks of its host's other ranks, and sends those of the other hosts' ranks
// to them as they are. It then reduces its own block in one pass over what its host shares and what
// has come.
//
// Cost: 1 round inside a host and 1 between hosts; every contribution travels unreduced. Use: one
// host; between hosts, small payloads, and blocks of different lengths.
#include <vector>

#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

// In place, the output is block `rank` of the input, which no peer reads.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<int> local = local_ranks(p), remote = remote_ranks(p);
  for (int rank : local) {
    const Operand theirs = input_of(p, p.rank, rank);
    if (rank != p.rank && theirs.count > 0) {
      plan.share(theirs);
    }
  }
  if (local.size() > 1) {
    plan.signal();
  }
  plan.next_round();
  const Operand mine = output_of(p, p.rank);
  std::vector<Source> terms;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    terms.push_back({.from = input_of(p, rank, p.rank), .covers = {rank, rank + 1}});
  }
  for (int rank : remote) {
    const Operand theirs = input_of(p, p.rank, rank);
    if (theirs.count > 0) {
      plan.send(rank, theirs);
    }
    if (mine.count == 0) {
      continue;
    }
    Source& term = terms[rank];
    term.from = plan.room_for(term.covers, mine.count);
    plan.recv(rank, term.from);
  }
  plan.next_round();
  if (mine.count > 0) {
    plan.reduce(terms, mine, local.size() > 1 ? 1 : 0);
  }
}

Cost cost(const Problem& p) {
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t mine = output_of(p, p.rank).count, size = size_of(p.input);
  std::size_t leaving = 0;
  for (int rank : remote_ranks(p)) {
    leaving += input_of(p, p.rank, rank).count;
  }
  const bool messages = leaving > 0 || (remote > 0 && mine > 0);
  return {.rounds = (messages ? 1 : 0) + (local > 1 && mine > 0 ? 1 : 0),
          .bytes_sent = leaving * size,
          .bytes_received = remote * mine * size,
          .bytes_pulled = (local - 1) * mine * size};
}

}  // namespace

extern const Algorithm reduce_scatter_direct = {
    .collective = Collective::reduce_scatter,
    .name = "direct",
    .summary = "Each rank reduces its block from all inputs: one host, or small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
