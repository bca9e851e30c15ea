// Recursive doubling (Thakur, Rabenseifner, Gropp 2005) over hosts, along the canonical tree.
//
// The ranks of a host are one node of the canonical tree. Its first rank leads: it reduces the
// host's contributions to that node's partial. Then it climbs to the root: at each node above, the
// leaders of both halves exchange their partials, and each of them joins the two. So all leaders
// have the result at once. A leader whose host has one rank sends its contribution as it is.
// Finally each leader shares the result, and the ranks of its host pull it.
//
// Cost: ceil(lg P/L) messages in a row, each of the whole payload; 1 round inside a host before and
// after. Use: several hosts and small payloads, where a message costs more than its bytes.
#include <vector>

#include "collectives/patterns/doubling.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return one_node_a_host(*p.grouping); }

void follow_leader(const Problem& p, Plan& plan, int leader) {
  plan.share(input_of(p, p.rank));
  plan.signal();
  plan.copy(output_of(p, leader), output_of(p, p.rank), 1);
}

// In place, a result overwrites inputs that the leader alone reads, before it shares the result.
void lead(const Problem& p, Plan& plan) {
  const std::vector<int>& members = p.grouping->members(p.grouping->host_of(p.rank));
  const std::vector<DoublingStep> doubling_steps = doubling_steps_of(p);
  const std::uint32_t needs = members.size() > 1 ? 1 : 0;
  const Operand result = output_of(p, p.rank);
  std::vector<Source> terms;
  for (int rank : members) {
    terms.push_back({.from = input_of(p, rank), .covers = {rank, rank + 1}});
  }
  Operand partial = result;
  if (doubling_steps.empty() || needs > 0) {
    if (!doubling_steps.empty()) {
      partial = plan.scratch(p.count);
    }
    plan.reduce(terms, partial, needs);
  } else {
    partial = terms.front().from;  // the only contribution of this host leaves as it is
  }
  for (const DoublingStep& doubling_step : doubling_steps) {
    plan.next_round();
    for (int sink : doubling_step.sinks) {
      plan.send(sink, partial);
    }
    const Operand theirs = plan.room_for(doubling_step.theirs, p.count);
    plan.recv(doubling_step.source, theirs);
    plan.next_round();
    const bool last = &doubling_step == &doubling_steps.back();
    const Operand to = last ? result : joint_of(plan, theirs);
    join_halves(plan, doubling_step, partial, theirs, to);
    partial = to;
  }
  plan.next_round();
  if (members.size() == 1) {
    return;
  }
  plan.share(result);
  plan.signal();
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const int first = leader_of(*p.grouping, p.grouping->host_of(p.rank));
  if (p.rank == first) {
    return lead(p, plan);
  }
  follow_leader(p, plan, first);
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank);
  const std::size_t peers = grouping.members(home).size() - 1;
  if (p.rank != leader_of(grouping, home)) {
    return {.rounds = 1, .bytes_pulled = p.count * size_of(p.output)};
  }
  Cost cost{.rounds = peers > 0 ? 1 : 0, .bytes_pulled = peers * p.count * size_of(p.input)};
  for (const DoublingStep& doubling_step : doubling_steps_of(p)) {
    ++cost.rounds;
    cost.bytes_sent += doubling_step.sinks.size() * p.count * partial_size(p, doubling_step.mine);
    cost.bytes_received += p.count * partial_size(p, doubling_step.theirs);
  }
  return cost;
}

}  // namespace

extern const Algorithm all_reduce_doubling = {
    .collective = Collective::all_reduce,
    .name = "doubling",
    .summary = "Hosts exchange partials at each level of the tree: several hosts, small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
