// Ring all-gather over hosts: each host passes on to the next what the round before brought it, one
// rank per part, while its other ranks pull what has come.
// Cost: H-1 rounds; every part enters each host once, and only neighbours talk.
// Use: many hosts and large parts, where many senders at once would collide.
#include <algorithm>

#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts; }

/// The ring as one rank sees it.
struct Ring {
  explicit Ring(const Problem& problem)
      : p(problem),
        grouping(*problem.grouping),
        hosts(grouping.hosts()),
        home(grouping.host_of(problem.rank)),
        next((home + 1) % hosts),
        previous((home + hosts - 1) % hosts) {}

  /// Ranks whose parts this host has had for `rounds` rounds, 0 for its own.
  const std::vector<int>& arrived(int rounds) const {
    return grouping.members((home + hosts - rounds) % hosts);
  }
  bool carries(int owner) const { return carrier(grouping, home, owner) == p.rank; }

  const Problem& p;
  const Grouping& grouping;
  int hosts, home, next, previous;
};

void pass_round(const Ring& ring, Plan& plan, int round) {
  const Problem& p = ring.p;
  for (int owner : ring.arrived(round)) {
    const Operand part = round == 0 ? input_of(p, p.rank) : output_of(p, p.rank, owner);
    if (ring.carries(owner)) plan.send(carrier(ring.grouping, ring.next, owner), part);
  }
  for (int owner : ring.arrived(round + 1)) {
    const int sender = carrier(ring.grouping, ring.previous, owner);
    if (ring.carries(owner)) plan.recv(sender, output_of(p, p.rank, owner));
  }
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const Ring ring(p);
  const bool has_peers = ring.grouping.members(ring.home).size() > 1;
  if (has_peers) {
    plan.share(input_of(p, p.rank));
    plan.signal();
  }
  for (int round = 0; round + 1 < ring.hosts; ++round) {
    pass_round(ring, plan, round);
    plan.next_round();
    if (!has_peers) continue;
    for (int owner : ring.arrived(round + 1)) {
      if (ring.carries(owner)) plan.share(output_of(p, p.rank, owner));
    }
    plan.signal();
  }
  plan.next_lane();
  for (int owner : local_ranks(p)) {
    plan.copy(input_of(p, owner), output_of(p, p.rank, owner), owner == p.rank ? 0 : 1);
  }
  for (int round = 1; round < ring.hosts; ++round) {
    for (int owner : ring.arrived(round)) {
      if (ring.carries(owner)) continue;
      const Operand held = output_of(p, carrier(ring.grouping, ring.home, owner), owner);
      plan.copy(held, output_of(p, p.rank, owner), static_cast<std::uint32_t>(round) + 1);
    }
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const Ring ring(p);
  const auto carried = [&ring](int rounds) {
    return static_cast<std::size_t>(std::ranges::count_if(
        ring.arrived(rounds), [&ring](int owner) { return ring.carries(owner); }));
  };
  const std::size_t part_bytes = p.count * size_of(p.input);
  int busy_rounds = 0;
  std::size_t sent = 0, received = 0;
  for (int round = 0; round + 1 < ring.hosts; ++round) {
    const std::size_t out = carried(round), in = carried(round + 1);
    sent += out;
    received += in;
    busy_rounds += out + in > 0 ? 1 : 0;
  }
  const std::size_t pulled = static_cast<std::size_t>(p.ranks()) - 1 - received;
  return {.rounds = std::max(busy_rounds, pulled > 0 ? 1 : 0),
          .bytes_sent = sent * part_bytes,
          .bytes_received = received * part_bytes,
          .bytes_pulled = pulled * part_bytes};
}

}  // namespace

extern const Algorithm all_gather_ring = {
    .collective = Collective::all_gather,
    .name = "ring",
    .summary = "Hosts pass parts on to their neighbour: many hosts, large parts.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
