// Recursive doubling over hosts: who meets whom.
#include "collectives/patterns/doubling.hpp"

#include <algorithm>

namespace sprat::collectives {

namespace {

std::vector<int> leaders_in(const Grouping& grouping, RankRange range) {
  std::vector<int> leaders;
  for (int rank = range.first; rank < range.last; ++rank) {
    if (leader_of(grouping, grouping.host_of(rank)) == rank) {
      leaders.push_back(rank);
    }
  }
  return leaders;
}

// The k-th of one half gets from the k-th of the other, as often as the larger half asks.
DoublingStep doubling_step_of(const Grouping& grouping, int host, RankRange mine,
                              RankRange theirs) {
  const std::vector<int> here = leaders_in(grouping, mine), there = leaders_in(grouping, theirs);
  const auto place =
      static_cast<std::size_t>(std::ranges::find(here, leader_of(grouping, host)) - here.begin());
  DoublingStep doubling_step{mine, theirs, there[place % there.size()], {}};
  for (std::size_t other = 0; other < there.size(); ++other) {
    if (other % here.size() == place) {
      doubling_step.sinks.push_back(there[other]);
    }
  }
  return doubling_step;
}

}  // namespace

bool one_node_a_host(const Grouping& grouping) {
  for (int host = 0; host < grouping.hosts(); ++host) {
    if (grouping.subtrees(host).size() > 1) {
      return false;
    }
  }
  return true;
}

int leader_of(const Grouping& grouping, int host) { return grouping.members(host).front(); }

std::vector<DoublingStep> doubling_steps_of(const Problem& problem) {
  const Grouping& grouping = *problem.grouping;
  const int home = grouping.host_of(problem.rank);
  const RankRange own = grouping.subtrees(home).front();
  std::vector<DoublingStep> doubling_steps;
  for (RankRange node{0, problem.ranks()}; !(node == own);) {
    const int middle = split_point(node);
    const RankRange left{node.first, middle}, right{middle, node.last};
    const bool on_left = own.first < middle;
    doubling_steps.push_back(on_left ? doubling_step_of(grouping, home, left, right)
                                     : doubling_step_of(grouping, home, right, left));
    node = on_left ? left : right;
  }
  std::ranges::reverse(doubling_steps);
  return doubling_steps;
}

Operand joint_of(Plan& plan, const Operand& theirs) {
  return theirs.buffer == Buffer::scratch ? theirs : plan.scratch(theirs.count);
}

void join_halves(Plan& plan, const DoublingStep& doubling_step, const Operand& mine,
                 const Operand& theirs, const Operand& to, std::uint32_t needs) {
  std::vector<Source> terms = {{.from = mine, .covers = doubling_step.mine},
                               {.from = theirs, .covers = doubling_step.theirs}};
  std::ranges::sort(terms, {}, [](const Source& term) { return term.covers.first; });
  plan.reduce(terms, to, needs);
}

}  // namespace sprat::collectives
