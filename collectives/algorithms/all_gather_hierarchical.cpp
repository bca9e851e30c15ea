// Two-level all-gather: every part goes to one rank of each other host, which its host's ranks pull
// from. Cost: 1 round between hosts, 1 inside; a rank sends its part once per other host. Use:
// several hosts; short chains, many peers at once.
#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts; }

bool carries(const Problem& p, int owner) {
  return carrier(*p.grouping, p.grouping->host_of(p.rank), owner) == p.rank;
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank);
  const std::vector<int> local = local_ranks(p), remote = remote_ranks(p);
  if (local.size() > 1) {
    plan.share(input_of(p, p.rank));
    plan.signal();
  }
  for (int distance = 1; distance < grouping.hosts(); ++distance) {
    const int host = (home + distance) % grouping.hosts();
    plan.send(carrier(grouping, host, p.rank), input_of(p, p.rank));
  }
  for (int rank : remote) {
    if (carries(p, rank)) plan.recv(rank, output_of(p, p.rank, rank));
  }
  plan.next_round();
  if (local.size() > 1 && !remote.empty()) {
    for (int rank : remote) {
      if (carries(p, rank)) plan.share(output_of(p, p.rank, rank));
    }
    plan.signal();
    plan.next_round();
  }
  for (int rank : remote) {
    const Operand held = output_of(p, carrier(grouping, home, rank), rank);
    if (!carries(p, rank)) plan.copy(held, output_of(p, p.rank, rank), 2);
  }
  plan.next_lane();
  for (int rank : local) {
    plan.copy(input_of(p, rank), output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const std::size_t part_bytes = p.count * size_of(p.input);
  std::size_t carried = 0, pulled = 0;
  for (int rank : remote_ranks(p)) ++(carries(p, rank) ? carried : pulled);
  const std::size_t peers = local_ranks(p).size() - 1;
  const auto other_hosts = static_cast<std::size_t>(p.grouping->hosts() - 1);
  return {.rounds = other_hosts > 0 ? (pulled > 0 ? 2 : 1) : (peers > 0 ? 1 : 0),
          .bytes_sent = other_hosts * part_bytes,
          .bytes_received = carried * part_bytes,
          .bytes_pulled = (pulled + peers) * part_bytes};
}

}  // namespace

extern const Algorithm all_gather_hierarchical = {
    .collective = Collective::all_gather,
    .name = "hierarchical",
    .summary = "Each part once to every host, then pulled inside it: several hosts.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
