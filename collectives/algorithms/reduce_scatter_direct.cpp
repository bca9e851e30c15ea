// Direct reduce-scatter: each rank reduces its block straight from everybody's contribution.
// Cost: 1 round inside a host and 1 between hosts; every contribution travels unreduced.
// Use: one host; between hosts, small payloads, and blocks of different lengths.
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
  std::vector<Operand> leaving;
  for (int rank : remote) {
    const Operand theirs = input_of(p, p.rank, rank);
    leaving.push_back(theirs.count > 0 ? widened(p, plan, theirs) : theirs);
  }
  plan.next_round();
  const Operand mine = output_of(p, p.rank);
  std::vector<Source> terms;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    terms.push_back({.from = input_of(p, rank, p.rank), .covers = {rank, rank + 1}});
  }
  for (std::size_t i = 0; i < remote.size(); ++i) {
    if (leaving[i].count > 0) {
      plan.send(remote[i], leaving[i]);
    }
    if (mine.count == 0) {
      continue;
    }
    Operand& term = terms[remote[i]].from;
    term = plan.scratch(mine.count);
    plan.recv(remote[i], term);
  }
  plan.next_round();
  if (mine.count > 0) {
    plan.reduce(terms, mine, local.size() > 1 ? 1 : 0);
  }
}

Cost cost(const Problem& p) {
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t mine = output_of(p, p.rank).count, size = size_of(p.accumulator());
  std::size_t leaving = 0;
  for (int rank : remote_ranks(p)) {
    leaving += input_of(p, p.rank, rank).count;
  }
  const bool messages = leaving > 0 || (remote > 0 && mine > 0);
  return {.rounds = (messages ? 1 : 0) + (local > 1 && mine > 0 ? 1 : 0),
          .bytes_sent = leaving * size,
          .bytes_received = remote * mine * size,
          .bytes_pulled = (local - 1) * mine * size_of(p.input)};
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
