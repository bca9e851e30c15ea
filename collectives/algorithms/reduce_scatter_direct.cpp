// Direct reduce-scatter: each rank reduces its block straight from everybody's contribution.
// Cost: 1 round inside a host and 1 between hosts; every contribution travels unreduced.
// Use: one host; between hosts, small payloads.
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

// In place, the output is block `rank` of the input, which no peer reads.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const std::vector<int> local = local_ranks(p), remote = remote_ranks(p);
  for (int rank : local) {
    if (rank != p.rank) plan.share(input_of(p, p.rank, rank));
  }
  if (local.size() > 1) plan.signal();
  std::vector<Operand> leaving;
  for (int rank : remote) leaving.push_back(widened(p, plan, input_of(p, p.rank, rank)));
  plan.next_round();
  std::vector<Source> terms;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    terms.push_back({.from = input_of(p, rank, p.rank), .covers = {rank, rank + 1}});
  }
  for (std::size_t i = 0; i < remote.size(); ++i) {
    Operand& term = terms[remote[i]].from;
    term = plan.scratch(p.count);
    plan.send(remote[i], leaving[i]);
    plan.recv(remote[i], term);
  }
  plan.next_round();
  plan.reduce(terms, output_of(p, p.rank), local.size() > 1 ? 1 : 0);
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t message_bytes = p.count * size_of(p.accumulator());
  return {.rounds = (local > 1 ? 1 : 0) + (remote > 0 ? 1 : 0),
          .bytes_sent = remote * message_bytes,
          .bytes_received = remote * message_bytes,
          .bytes_pulled = (local - 1) * p.count * size_of(p.input)};
}

}  // namespace

extern const Algorithm reduce_scatter_direct = {
    .collective = Collective::reduce_scatter,
    .name = "direct",
    .summary = "Each rank reduces its block from all inputs: one host, or small payloads.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
