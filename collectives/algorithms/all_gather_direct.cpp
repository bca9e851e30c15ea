// Direct all-gather: every part goes from its owner to every rank, at once.
//
// Each rank shares its part. It pulls the parts of its own host from there, and sends its own part
// to every rank of the other hosts. Pulls and messages are two lanes that do not wait for each
// other.
//
// Cost: 1 round; each rank receives P-1 parts, those of its host by pulling, others by message.
// Use: one host; between hosts, small payloads, and parts of different lengths.
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const Operand part = input_of(p, p.rank);
  const std::vector<int> local = local_ranks(p);
  if (local.size() > 1) {
    if (part.count > 0) {
      plan.share(part);
    }
    plan.signal();
    plan.next_round();
  }
  for (int rank : local_ranks_peers_first(p)) {
    const Operand theirs = input_of(p, rank);
    if (theirs.count > 0) {
      plan.copy(theirs, output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
    }
  }
  plan.next_lane();
  for (int rank : remote_ranks(p)) {
    const Operand block = output_of(p, p.rank, rank);
    if (part.count > 0) {
      plan.send(rank, part);
    }
    if (block.count > 0) {
      plan.recv(rank, block);
    }
  }
}

Cost cost(const Problem& p) {
  const std::size_t size = size_of(p.input), mine = input_of(p, p.rank).count;
  Cost cost;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    const std::size_t theirs = input_of(p, rank).count;
    if (rank == p.rank) {
      continue;
    }
    if (p.grouping->together(p.rank, rank)) {
      cost.bytes_pulled += theirs * size;
    } else {
      cost.bytes_sent += mine * size;
      cost.bytes_received += theirs * size;
    }
  }
  cost.rounds = cost.bytes_pulled + cost.bytes_sent + cost.bytes_received > 0 ? 1 : 0;
  return cost;
}

}  // namespace

extern const Algorithm all_gather_direct = {
    .collective = Collective::all_gather,
    .name = "direct",
    .summary = "Every part straight to every rank: one host, or small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
