// Direct all-gather: every part goes from its owner to every rank, at once.
// Cost: 1 round; each rank receives P-1 parts, from hosts' peers by pulling, from others by
// message. Use: one host; between hosts, small payloads.
#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const Operand part = input_of(p, p.rank);
  const std::vector<int> local = local_ranks(p);
  if (local.size() > 1) {
    plan.share(part);
    plan.signal();
    plan.next_round();
  }
  for (int rank : local) {
    plan.copy(input_of(p, rank), output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
  }
  plan.next_lane();
  for (int rank : remote_ranks(p)) {
    plan.send(rank, part);
    plan.recv(rank, output_of(p, p.rank, rank));
  }
}

Cost cost(const Problem& p) {
  const std::size_t local = local_ranks(p).size(), remote = p.ranks() - local;
  const std::size_t part_bytes = p.count * size_of(p.input);
  return {.rounds = p.ranks() > 1 && p.count > 0 ? 1 : 0,
          .bytes_sent = remote * part_bytes,
          .bytes_received = remote * part_bytes,
          .bytes_pulled = (local - 1) * part_bytes};
}

}  // namespace

extern const Algorithm all_gather_direct = {
    .collective = Collective::all_gather,
    .name = "direct",
    .summary = "Every part straight to every rank: one host, or small payloads.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
