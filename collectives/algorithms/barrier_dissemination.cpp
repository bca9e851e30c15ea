// Barrier: ranks of a host meet by signals, hosts by dissemination (Hensgen, Finkel, Manber 1988).
//
// On one host every rank signals, and waits for the signals of all. On several, the first rank of a
// host leads. It waits until its host has come. In round k the leaders send an empty message to the
// one 2^k hosts on and await one from 2^k hosts back: after ceil(lg H) rounds each has heard,
// through others, from all. Then the signal of each leader lets its host go.
//
// Cost: 1 round on one host; else 1 to gather the host, ceil(lg hosts) messages, 1 to release it.
// Use: always.
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void meet_on_host(const Problem& p, Plan& plan) {
  plan.signal();
  for (int rank : local_ranks(p)) {
    if (rank != p.rank) {
      plan.wait(rank, 1);
    }
  }
}

void meet_leaders(const Problem& p, Plan& plan) {
  const Grouping& grouping = *p.grouping;
  const int hosts = grouping.hosts(), home = grouping.host_of(p.rank);
  for (int distance = 1; distance < hosts; distance *= 2) {
    plan.next_round();
    plan.send(grouping.members((home + distance) % hosts).front(), {.rank = p.rank});
    plan.recv(grouping.members((home - distance + hosts) % hosts).front(), {.rank = p.rank});
  }
}

void plan(const Problem& p, Plan& plan) {
  const Grouping& grouping = *p.grouping;
  const std::vector<int>& members = grouping.members(grouping.host_of(p.rank));
  const int leader = members.front();
  if (grouping.hosts() == 1) {
    if (members.size() > 1) {
      meet_on_host(p, plan);
    }
    return;
  }
  if (p.rank != leader) {
    plan.signal();
    plan.wait(leader, 1);
    return;
  }
  for (int rank : members) {
    if (rank != leader) {
      plan.wait(rank, 1);
    }
  }
  meet_leaders(p, plan);
  plan.next_round();
  if (members.size() > 1) {
    plan.signal();
  }
}

Cost cost(const Problem& p) {
  const Grouping& grouping = *p.grouping;
  const std::vector<int>& members = grouping.members(grouping.host_of(p.rank));
  int rounds = members.size() > 1 ? 1 : 0;
  if (p.rank == members.front()) {
    for (int distance = 1; distance < grouping.hosts(); distance *= 2) {
      ++rounds;
    }
  }
  return {.rounds = rounds};
}

}  // namespace

extern const Algorithm barrier_dissemination = {
    .collective = Collective::barrier,
    .name = "dissemination",
    .summary = "Signals on a host, dissemination between hosts: always.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
