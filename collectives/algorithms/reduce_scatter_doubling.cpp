// Recursive doubling for reduce-scatter, over hosts.
//
// One rank leads each host: it reduces its host's contributions to every block. Then it climbs the
// canonical tree as in all_reduce_doubling: at each node the leaders of both halves exchange their
// partials of all blocks and join them. At the root each sends only those blocks that the other's
// host keeps. Each rank of a host then joins the two partials of its own block, which it reads from
// its leader. Halving what is sent at each level would take fewer bytes, but another order than the
// tree's.
//
// Cost: ceil(lg H) messages in a row, each of the whole payload but the last; 1 round inside a host
// before and after. Use: more than two hosts and small payloads, where a message costs more than
// its bytes.
#include <vector>

#include "collectives/patterns/doubling.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) {
  return !p.counts && p.grouping->hosts() > 1 && one_node_a_host(*p.grouping);
}

/// Where a host's leader keeps the two partials that a doubling step joins.
struct Halves {
  Operand mine, theirs;
};

/// By doubling_steps: this half's partial, of all blocks; and what comes of the other half, in the
/// last of them only the blocks of this host's ranks. Blocks lie host by host.
std::vector<Halves> halves_of(const Problem& p, const std::vector<DoublingStep>& doubling_steps,
                              Plan& leaders) {
  const std::size_t all = p.count * static_cast<std::size_t>(p.ranks());
  const std::size_t kept = p.count * p.grouping->members(p.grouping->host_of(p.rank)).size();
  std::vector<Halves> halves;
  Operand mine = leaders.room_for(doubling_steps.front().mine, all);
  for (const DoublingStep& doubling_step : doubling_steps) {
    const bool last = &doubling_step == &doubling_steps.back();
    const Operand theirs = leaders.room_for(doubling_step.theirs, last ? kept : all);
    halves.push_back({mine, theirs});
    mine = last ? mine : joint_of(leaders, theirs);
  }
  return halves;
}

/// The blocks of a host's ranks in a partial of all.
Operand blocks_of_host(const Problem& p, const Operand& partial, int host) {
  std::size_t before = 0;
  for (int other = 0; other < host; ++other) {
    before += p.grouping->members(other).size();
  }
  return piece_of(partial, {p.count * before, p.count * p.grouping->members(host).size()});
}

/// A rank's block among those of its host.
Operand block_of_rank(const Problem& p, const Operand& blocks, int rank) {
  const auto place = static_cast<std::size_t>(p.grouping->local_index(rank));
  return piece_of(blocks, {p.count * place, p.count});
}

/// This rank's block, from its leader's partials.
void finish(const Problem& p, Plan& plan, const std::vector<DoublingStep>& doubling_steps,
            const Halves& halves, std::uint32_t needs) {
  const Operand kept = blocks_of_host(p, halves.mine, p.grouping->host_of(p.rank));
  join_halves(plan, doubling_steps.back(), block_of_rank(p, kept, p.rank),
              block_of_rank(p, halves.theirs, p.rank), output_of(p, p.rank), needs);
}

/// The host's partial of every block.
void reduce_home(const Problem& p, Plan& plan, const Operand& to) {
  const std::vector<int>& members = p.grouping->members(p.grouping->host_of(p.rank));
  for (int owner = 0; owner < p.ranks(); ++owner) {
    std::vector<Source> terms;
    for (int rank : members) {
      terms.push_back({.from = input_of(p, rank, owner), .covers = {rank, rank + 1}});
    }
    const Operand blocks = blocks_of_host(p, to, p.grouping->host_of(owner));
    const Operand block = block_of_rank(p, blocks, owner);
    if (terms.size() == 1) {
      // Copied all the same: blocks of a window lie apart in the input, and leave in one message.
      plan.copy(terms.front().from, block);
    } else {
      plan.reduce(terms, block, 1);
    }
  }
}

void lead(const Problem& p, Plan& plan, const std::vector<DoublingStep>& doubling_steps) {
  const Grouping& grouping = *p.grouping;
  const std::vector<Halves> halves = halves_of(p, doubling_steps, plan);
  reduce_home(p, plan, halves.front().mine);
  for (std::size_t at = 0; at < doubling_steps.size(); ++at) {
    const DoublingStep& doubling_step = doubling_steps[at];
    const bool last = at + 1 == doubling_steps.size();
    const auto& [mine, theirs] = halves[at];
    plan.next_round();
    for (int sink : doubling_step.sinks) {
      plan.send(sink, last ? blocks_of_host(p, mine, grouping.host_of(sink)) : mine);
    }
    plan.recv(doubling_step.source, theirs);
    plan.next_round();
    if (!last) {
      join_halves(plan, doubling_step, mine, theirs, halves[at + 1].mine);
    }
  }
  if (grouping.members(grouping.host_of(p.rank)).size() > 1) {
    plan.signal();
  }
  finish(p, plan, doubling_steps, halves.back(), 0);
}

void follow(const Problem& p, Plan& plan, const std::vector<DoublingStep>& doubling_steps,
            int leader) {
  for (int owner = 0; owner < p.ranks(); ++owner) {
    plan.share(input_of(p, p.rank, owner));
  }
  plan.signal();
  plan.next_round();
  Problem theirs = p;
  theirs.rank = leader;
  Plan leaders(theirs);
  finish(p, plan, doubling_steps, halves_of(p, doubling_steps, leaders).back(), 1);
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const int leader = leader_of(*p.grouping, p.grouping->host_of(p.rank));
  const std::vector<DoublingStep> doubling_steps = doubling_steps_of(p);
  if (p.rank == leader) {
    return lead(p, plan, doubling_steps);
  }
  follow(p, plan, doubling_steps, leader);
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank);
  const std::vector<DoublingStep> doubling_steps = doubling_steps_of(p);
  if (p.rank != leader_of(grouping, home)) {
    const DoublingStep& last = doubling_steps.back();
    return {.rounds = 1,
            .bytes_pulled = p.count * (partial_size(p, last.mine) + partial_size(p, last.theirs))};
  }
  const auto ranks = static_cast<std::size_t>(p.ranks());
  const std::size_t peers = grouping.members(home).size() - 1;
  Cost cost{.rounds = peers > 0 ? 1 : 0,
            .bytes_pulled = peers * ranks * p.count * size_of(p.input)};
  for (const DoublingStep& doubling_step : doubling_steps) {
    const bool last = &doubling_step == &doubling_steps.back();
    ++cost.rounds;
    for (int sink : doubling_step.sinks) {
      const std::size_t kept = grouping.members(grouping.host_of(sink)).size();
      cost.bytes_sent += (last ? kept : ranks) * p.count * partial_size(p, doubling_step.mine);
    }
    cost.bytes_received +=
        (last ? peers + 1 : ranks) * p.count * partial_size(p, doubling_step.theirs);
  }
  return cost;
}

}  // namespace

extern const Algorithm reduce_scatter_doubling = {
    .collective = Collective::reduce_scatter,
    .name = "doubling",
    .summary =
        "Partials of all blocks at each level of the tree: several "
        "hosts, small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
