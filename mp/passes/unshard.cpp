// Gathers ahead of computation, as many as a budget of stages allows.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

/// One rank's parameters while its actions go by.
class Gathering {
 public:
  Gathering(const std::vector<Action>& actions, std::size_t budget)
      : actions_(actions), budget_(budget) {
    for (const Action& action : actions) {
      for (const Action& part : parts_of(action)) {
        if (is_computation(part.op)) {
          ++left_[part.stage];
        }
      }
    }
  }

  std::vector<Action> run() {
    for (std::size_t at = 0; at < actions_.size(); ++at) {
      const bool computes = is_computation(actions_[at].op);
      if (computes) {
        gather_for(at);
      }
      result_.push_back(actions_[at]);
      for (const Action& part : parts_of(actions_[at])) {
        if (computes && --left_[part.stage] == 0) {
          left_.erase(part.stage);
          drop(part.stage);
        }
      }
    }
    return std::move(result_);
  }

 private:
  void gather_for(std::size_t at) {
    // Room for those needed next, at the expense of those needed last: of all orders this one
    // gathers least (Belady).
    const std::vector<int> needed = stages_needed_from(at);
    for (std::size_t i = 0; i < std::min(budget_, needed.size()); ++i) {
      if (std::ranges::count(gathered_, needed[i]) != 0) {
        continue;
      }
      if (gathered_.size() == budget_) {
        drop(*std::ranges::max_element(gathered_, {}, [&](int stage) {
          return std::ranges::find(needed, stage) - needed.begin();
        }));
      }
      gathered_.push_back(needed[i]);
      result_.push_back({.op = Op::unshard, .stage = needed[i]});
    }
  }
  /// All that are left, in the order of their next use.
  std::vector<int> stages_needed_from(std::size_t at) const {
    std::vector<int> stages;
    for (; stages.size() < left_.size(); ++at) {
      for (const Action& part : parts_of(actions_[at])) {
        if (is_computation(part.op) && std::ranges::count(stages, part.stage) == 0) {
          stages.push_back(part.stage);
        }
      }
    }
    return stages;
  }
  void drop(int stage) {
    std::erase(gathered_, stage);
    result_.push_back({.op = Op::reshard, .stage = stage});
  }

  const std::vector<Action>& actions_;
  std::size_t budget_;
  std::map<int, int> left_;  ///< Computations to come, by stage.
  std::vector<int> gathered_;
  std::vector<Action> result_;
};

}  // namespace

Schedule unshard(const Schedule& schedule, int stages) {
  require(stages >= 1, "parameters of ", stages, " stages cannot be gathered; take 1 or more");
  Schedule result = schedule;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      require(action.op != Op::unshard && action.op != Op::reshard, "rank ", rank, " has ",
              to_text(action), ": the schedule gathers already");
      require(action.op != Op::overlap || stages >= 2 || action.stage == action.other_stage,
              "rank ", rank, " computes ", to_text(action),
              " with the parameters of two stages at once; take 2 or more, not ", stages);
    }
    result.actions[rank] = Gathering(schedule.actions[rank], std::size_t(stages)).run();
  }
  return result;
}

}  // namespace sprat::mp
