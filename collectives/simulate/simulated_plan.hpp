// A plan in the form that the simulator runs: what each step costs and waits for, and no more.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "collectives/plan/plan.hpp"
#include "collectives/simulate/machine.hpp"

namespace sprat::collectives {

/// A step. Indices are into the same plan; `none` is no index.
struct Task {
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  std::uint32_t cost = 0;         ///< See cost_of().
  std::int32_t peer = -1;         ///< A rank; -1: none; less: several, see peers_of().
  std::uint32_t ordinal = 0;      ///< send, recv: among the pair's. Else how many signals it needs.
  std::uint32_t watchers = none;  ///< First of the gates that watch this task.
  std::uint32_t next = none;      ///< Of those that await the same peer.
  Verb verb = Verb::wait;
  bool reached = false;  ///< All that comes before it is done.
  bool arrived = false;  ///< recv: the message has come.
  bool done = false;
};

/// How long a task occupies what carries it out.
struct TaskCost {
  double seconds = 0;       ///< Of the core, or of a rail.
  double link_seconds = 0;  ///< Of the link of each peer whose memory it reads.
  auto operator<=>(const TaskCost&) const = default;
};

/// Holds tasks [begin, end) until tasks [watched, last) are done. It watches one at a time, and
/// moves on when that is done.
struct Gate {
  std::uint32_t watched = 0, last = 0;
  std::uint32_t begin = 0, end = 0;
  std::uint32_t next = Task::none;  ///< In the list of gates that watch the same task.
};

/// One rank's plan.
class SimulatedPlan {
 public:
  SimulatedPlan(const Problem& problem, const Plan& plan, const Machine& machine);

  std::vector<Task> tasks;
  std::vector<Gate> gates;

  const TaskCost& cost_of(const Task& task) const { return costs_[task.cost]; }
  /// With whom a task deals: whose memory on this host it reads, whom it awaits, or the other end
  /// of its message.
  std::span<const int> peers_of(const Task& task) const;
  /// The task that receives a peer's message of this ordinal.
  std::uint32_t receiver_of(int peer, std::uint32_t ordinal) const;

 private:
  void add_task(const Problem& problem, const Plan& plan, const Step& step, const Machine& machine);
  std::int32_t joint(std::vector<int> peers);
  void index_receives();
  std::uint32_t number_of(const TaskCost& cost);

  std::vector<TaskCost> costs_;  ///< Each once: steps are many, and of few lengths.
  std::map<TaskCost, std::uint32_t> cost_numbers_;  ///< In costs_.
  std::vector<std::vector<int>> several_;           ///< Sets of peers; a task's is at -2 - peer.
  /// Receives, by peer: those of inbox_peers_[i] are inbox_[inbox_begin_[i] ...], by ordinal.
  std::vector<int> inbox_peers_;
  std::vector<std::uint32_t> inbox_begin_, inbox_;
};

/// The rail of its host that a rank's messages take; where it has several of its own, their stripe.
struct RailShare {
  int rail = 0;
  double seconds_per_byte = 0;
};
RailShare rail_of(const Grouping& grouping, const Machine& machine, int rank);

}  // namespace sprat::collectives
