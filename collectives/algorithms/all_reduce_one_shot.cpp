// One-shot all-reduce: every rank reads every contribution and reduces all of it.
//
// Each rank shares its input with its host and sends it, as it is, to every rank of the other
// hosts. As soon as it has all contributions it reduces them in one pass. Nobody waits for
// another's result, so there is nothing that takes a second round.
//
// Cost: 1 round inside a host and 1 between hosts; every contribution goes to every rank. Use:
// small payloads, where the number of rounds is what costs.
#include <vector>

#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const Grouping& grouping = *p.grouping;
  const bool alone = grouping.members(grouping.host_of(p.rank)).size() == 1;
  const std::vector<int> remote = remote_ranks(p);
  if (!alone) {
    plan.share_snapshot(input_of(p, p.rank));  // in place, the result overwrites it
    plan.signal();
  }
  plan.next_round();
  std::vector<Source> terms;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    terms.push_back({.from = input_of(p, rank), .covers = {rank, rank + 1}});
  }
  for (int rank : remote) {
    terms[rank].from = plan.room_for(terms[rank].covers, p.count);
    plan.send(rank, input_of(p, p.rank));
    plan.recv(rank, terms[rank].from);
  }
  plan.next_round();
  plan.reduce(terms, output_of(p, p.rank), alone ? 0 : 1);
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t contribution_bytes = p.count * size_of(p.input);
  return {.rounds = (local > 1 ? 1 : 0) + (remote > 0 ? 1 : 0),
          .bytes_sent = remote * contribution_bytes,
          .bytes_received = remote * contribution_bytes,
          .bytes_pulled = (local - 1) * contribution_bytes};
}

}  // namespace

extern const Algorithm all_reduce_one_shot = {
    .collective = Collective::all_reduce,
    .name = "one_shot",
    .summary = "Everybody reduces everything: fewest rounds, for small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
    .snapshots = true,
};

}  // namespace sprat::collectives
