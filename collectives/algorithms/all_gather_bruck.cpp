// Bruck's all-gather (Bruck, Ho, Kipnis, Upfal, Weathersby 1997) over hosts.
//
// One rank leads each host. It first copies its host's parts together. In round k it then sends all
// that it has to the leader 2^k hosts back and gets as much from the leader 2^k hosts on, so what
// it has doubles each time, and after ceil(lg H) rounds it has every part. In the last round it
// sends no more than the other lacks. Each leader keeps the parts in the order of hosts from its
// own one on: so what it sends is always one piece, the first of its memory. Finally all ranks of
// the host copy the parts from there to where they belong.
//
// Cost: ceil(lg H) messages in a row, of 1, 2, 4, ... hosts' parts; 1 round inside a host before
// and after. Use: more than two hosts and small payloads, where a message costs more than its
// bytes.
#include <algorithm>

#include "collectives/patterns/doubling.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts; }

/// The host so many further on than this rank's.
int host_after(const Problem& p, int distance) {
  return (p.grouping->host_of(p.rank) + distance) % p.grouping->hosts();
}

/// Ranks of the `count` hosts from the `first`-th after this rank's on.
std::size_t ranks_of(const Problem& p, int first, int count) {
  std::size_t ranks = 0;
  for (int host = first; host < first + count; ++host) {
    ranks += p.grouping->members(host_after(p, host)).size();
  }
  return ranks;
}

/// The parts of these hosts' ranks as the leader has them: its own host's come
/// first.
Operand parts_of(const Problem& p, int first, int count) {
  return {.rank = leader_of(*p.grouping, host_after(p, 0)),
          .buffer = Buffer::scratch,
          .offset = p.count * ranks_of(p, 0, first),
          .count = p.count * ranks_of(p, first, count)};
}

void copy_parts(const Problem& p, Plan& plan, std::uint32_t needs) {
  for (int distance = 0; distance < p.grouping->hosts(); ++distance) {
    Operand part = parts_of(p, distance, 1);
    part.count = p.count;
    for (int owner : p.grouping->members(host_after(p, distance))) {
      if (owner != p.rank) {
        plan.copy(part, output_of(p, p.rank, owner), needs);
      }
      part.offset += p.count;
    }
  }
  plan.copy(input_of(p, p.rank), output_of(p, p.rank, p.rank));
}

void follow(const Problem& p, Plan& plan) {
  plan.share(input_of(p, p.rank));
  plan.signal();
  plan.next_round();
  copy_parts(p, plan, 1);
}

void lead(const Problem& p, Plan& plan) {
  const Grouping& grouping = *p.grouping;
  const int hosts = grouping.hosts();
  plan.scratch(p.count * static_cast<std::size_t>(p.ranks()));
  Operand part = parts_of(p, 0, 1);
  part.count = p.count;
  for (int member : grouping.members(host_after(p, 0))) {
    plan.copy(input_of(p, member), part, member == p.rank ? 0 : 1);
    part.offset += p.count;
  }
  for (int have = 1; have < hosts; have *= 2) {
    const int more = std::min(have, hosts - have);
    plan.next_round();
    plan.send(leader_of(grouping, host_after(p, hosts - have)), parts_of(p, 0, more));
    plan.recv(leader_of(grouping, host_after(p, have)), parts_of(p, have, more));
  }
  plan.next_round();
  if (grouping.members(host_after(p, 0)).size() > 1) {
    plan.signal();
  }
  copy_parts(p, plan, 0);
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  if (p.rank == leader_of(*p.grouping, host_after(p, 0))) {
    return lead(p, plan);
  }
  follow(p, plan);
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const int hosts = p.grouping->hosts();
  const std::size_t part_bytes = p.count * size_of(p.input);
  if (p.rank != leader_of(*p.grouping, host_after(p, 0))) {
    return {.rounds = 1, .bytes_pulled = part_bytes * static_cast<std::size_t>(p.ranks() - 1)};
  }
  const std::size_t peers = ranks_of(p, 0, 1) - 1;
  Cost cost{.rounds = peers > 0 ? 1 : 0, .bytes_pulled = peers * part_bytes};
  for (int have = 1; have < hosts; have *= 2) {
    const int more = std::min(have, hosts - have);
    ++cost.rounds;
    cost.bytes_sent += ranks_of(p, 0, more) * part_bytes;
    cost.bytes_received += ranks_of(p, have, more) * part_bytes;
  }
  return cost;
}

}  // namespace

extern const Algorithm all_gather_bruck = {
    .collective = Collective::all_gather,
    .name = "bruck",
    .summary =
        "Twice as many parts to a host twice as far: several hosts, "
        "small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
