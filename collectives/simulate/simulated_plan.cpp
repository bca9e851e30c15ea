// A plan in the form that the simulator runs.
//
// Thousands of ranks have millions of steps, so what does not change while they run is worked out
// here, once: seconds for bytes, one gate for all steps that wait for the same, and who receives
// what.
#include "collectives/simulate/simulated_plan.hpp"

#include <algorithm>

namespace sprat::collectives {

namespace {

constexpr double us = 1e-6, GBps = 1e9;

double bytes_of(const Problem& problem, const Operand& operand) {
  return static_cast<double>(operand.count * size_of(element_type(problem, operand.buffer)));
}

/// Whose memory a reduction reads, without this rank's.
std::vector<int> read_by(const Problem& problem, const Plan& plan, const Step& step) {
  std::vector<int> peers;
  for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
    const int rank = plan.sources[i].from.rank;
    if (rank != problem.rank && std::ranges::find(peers, rank) == peers.end()) {
      peers.push_back(rank);
    }
  }
  return peers;
}

void cost_copy(const Problem& problem, const Operand& from, const Machine& machine,
               TaskCost& cost) {
  const double bytes = bytes_of(problem, from);
  if (from.rank == problem.rank) {
    cost.seconds = bytes / (machine.copy_GBps * GBps);
  } else {
    cost.seconds = bytes / (machine.pull_GBps * GBps);
    cost.link_seconds = bytes / (machine.link_GBps * GBps);
  }
}

/// The sources of one step are equally long, so each peer's link is busy for as long.
void cost_reduction(const Problem& problem, const Plan& plan, const Step& step,
                    const Machine& machine, TaskCost& cost) {
  for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
    const Operand& from = plan.sources[i].from;
    const double bytes = bytes_of(problem, from);
    if (from.rank == problem.rank) {
      cost.seconds += bytes / (machine.copy_GBps * GBps);
    } else {
      cost.seconds += bytes / (machine.pull_GBps * GBps);
      cost.link_seconds = bytes / (machine.link_GBps * GBps);
    }
    if (i > step.sources.first) {
      cost.seconds += bytes / (machine.add_GBps * GBps);
    }
  }
}

/// A message between hosts occupies rails, one inside a host the receiver's core.
void cost_message(const Problem& problem, const Operand& operand, const Machine& machine,
                  const Task& task, TaskCost& cost) {
  const double bytes = bytes_of(problem, operand);
  if (problem.grouping->together(problem.rank, task.peer)) {
    cost.seconds = task.verb == Verb::recv ? bytes / (machine.pull_GBps * GBps) : 0;
  } else {
    const RailShare share = rail_of(*problem.grouping, machine, problem.rank);
    cost.seconds = machine.message_us * us + bytes * share.seconds_per_byte;
  }
}

}  // namespace

RailShare rail_of(const Grouping& grouping, const Machine& machine, int rank) {
  const auto ranks = static_cast<int>(grouping.members(grouping.host_of(rank)).size());
  const int rails = std::min(machine.rails, ranks);
  return {.rail = grouping.local_index(rank) * rails / ranks,
          .seconds_per_byte = rails / (machine.rails * machine.rail_GBps * GBps)};
}

SimulatedPlan::SimulatedPlan(const Problem& problem, const Plan& plan, const Machine& machine) {
  tasks.reserve(plan.steps.size());
  for (const Step& step : plan.steps) {
    const auto index = static_cast<std::uint32_t>(tasks.size());
    add_task(problem, plan, step, machine);
    // Steps of a round wait for the same range and stand together: they share a gate.
    const bool follows = !gates.empty() && step.after.first == gates.back().watched &&
                         step.after.last == gates.back().last;
    if (!follows) {
      gates.push_back({.watched = step.after.first, .last = step.after.last, .begin = index});
    }
    gates.back().end = index + 1;
  }
  gates.shrink_to_fit();
  index_receives();
}

void SimulatedPlan::add_task(const Problem& problem, const Plan& plan, const Step& step,
                             const Machine& machine) {
  Task& task = tasks.emplace_back();
  task.verb = step.verb;
  task.ordinal = step.needs;
  TaskCost cost;
  switch (step.verb) {
    case Verb::share:
      if (step.snapshot) {
        cost_copy(problem, step.from, machine, cost);
      }
      break;
    case Verb::signal:
      break;
    case Verb::wait:
      task.peer = step.peer;
      break;
    case Verb::copy:
      task.peer = step.from.rank == problem.rank ? -1 : step.from.rank;
      cost_copy(problem, step.from, machine, cost);
      break;
    case Verb::reduce:
      task.peer = joint(read_by(problem, plan, step));
      cost_reduction(problem, plan, step, machine, cost);
      break;
    case Verb::send:
    case Verb::recv:
      task.peer = step.peer;
      task.ordinal = step.message;
      cost_message(problem, step.verb == Verb::send ? step.from : step.to, machine, task, cost);
      break;
  }
  task.cost = number_of(cost);
}

/// Neighbours mostly cost the same, so the one before is looked at first.
std::uint32_t SimulatedPlan::number_of(const TaskCost& cost) {
  if (tasks.size() > 1) {
    const std::uint32_t before = tasks[tasks.size() - 2].cost;
    if (costs_[before] == cost) {
      return before;
    }
  }
  const auto [found, is_new] =
      cost_numbers_.try_emplace(cost, static_cast<std::uint32_t>(costs_.size()));
  if (is_new) {
    costs_.push_back(cost);
  }
  return found->second;
}

/// One number for any set of peers, as a task has room for no more: a rank, -1 for nobody, and
/// below that the place of a larger set in several_, the first at -2. Equal sets come one after
/// another, so only the last is looked at.
std::int32_t SimulatedPlan::joint(std::vector<int> peers) {
  if (peers.empty()) {
    return -1;
  }
  if (peers.size() == 1) {
    return peers.front();
  }
  if (several_.empty() || several_.back() != peers) {
    several_.push_back(std::move(peers));
  }
  return -1 - static_cast<std::int32_t>(several_.size());
}

std::span<const int> SimulatedPlan::peers_of(const Task& task) const {
  if (task.peer >= 0) {
    return {&task.peer, 1};
  }
  if (task.peer == -1) {
    return {};
  }
  return several_[-2 - task.peer];
}

void SimulatedPlan::index_receives() {
  for (std::uint32_t index = 0; index < tasks.size(); ++index) {
    if (tasks[index].verb == Verb::recv) {
      inbox_.push_back(index);
    }
  }
  // By peer, then by ordinal: ordinals have no gaps, so the n-th of a peer's is its place.
  std::ranges::sort(inbox_, {}, [this](std::uint32_t index) {
    return std::pair(tasks[index].peer, tasks[index].ordinal);
  });
  for (std::uint32_t at = 0; at < inbox_.size(); ++at) {
    const int peer = tasks[inbox_[at]].peer;
    if (!inbox_peers_.empty() && inbox_peers_.back() == peer) {
      continue;
    }
    inbox_peers_.push_back(peer);
    inbox_begin_.push_back(at);
  }
}

std::uint32_t SimulatedPlan::receiver_of(int peer, std::uint32_t ordinal) const {
  const auto found = std::ranges::lower_bound(inbox_peers_, peer);
  return inbox_[inbox_begin_[found - inbox_peers_.begin()] + ordinal];
}

}  // namespace sprat::collectives
