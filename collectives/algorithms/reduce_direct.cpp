// Direct reduce: the root reduces straight from everybody's contribution.
//
// Ranks of the root's host share their inputs; the others send theirs as they are. Once all have
// come, the root reduces them in one pass.
//
// Cost: 1 round inside a host and 1 between hosts; every contribution travels to the root
// unreduced. Use: one host; one rank on each host; small payloads.
#include <vector>

#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

// In place, the output is the root's input, which no peer reads.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const Operand mine = input_of(p, p.rank);
  if (p.rank != p.root) {
    if (p.grouping->together(p.rank, p.root)) {
      plan.share(mine);
      plan.signal();
    } else {
      plan.send(p.root, mine);
    }
    return;
  }
  std::vector<Source> terms;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    terms.push_back({.from = input_of(p, rank), .covers = {rank, rank + 1}});
  }
  for (int rank : remote_ranks(p)) {
    terms[rank].from = plan.room_for(terms[rank].covers, p.count);
    plan.recv(rank, terms[rank].from);
  }
  plan.next_round();
  plan.reduce(terms, output_of(p, p.rank), local_ranks(p).size() > 1 ? 1 : 0);
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const std::size_t contribution_bytes = p.count * size_of(p.input);
  if (p.rank != p.root) {
    const bool far = !p.grouping->together(p.rank, p.root);
    return {.rounds = far ? 1 : 0, .bytes_sent = far ? contribution_bytes : 0};
  }
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  return {.rounds = (local > 1 ? 1 : 0) + (remote > 0 ? 1 : 0),
          .bytes_received = remote * contribution_bytes,
          .bytes_pulled = (local - 1) * contribution_bytes};
}

}  // namespace

extern const Algorithm reduce_direct = {
    .collective = Collective::reduce,
    .name = "direct",
    .summary = "The root reduces all inputs: one host, one rank per host, or small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
