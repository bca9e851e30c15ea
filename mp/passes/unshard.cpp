// Gathers ahead of computation, as many as a budget of stages allows.
#include <algorithm>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

/// The stages that computations from `first` on need, in the order of need.
std::vector<int> stages_needed(const std::vector<Action>& actions, std::size_t first,
                               std::size_t most) {
  std::vector<int> stages;
  for (std::size_t at = first; at < actions.size() && stages.size() < most; ++at) {
    for (const Action& part : parts_of(actions[at])) {
      if (is_computation(part.op) && std::ranges::count(stages, part.stage) == 0) {
        stages.push_back(part.stage);
      }
    }
  }
  return stages;
}

/// One rank's parameters while its actions go by.
class Gathering {
 public:
  Gathering(const std::vector<Action>& actions, std::size_t budget)
      : actions_(actions), budget_(budget) {}

  std::vector<Action> run() {
    for (std::size_t at = 0; at < actions_.size(); ++at) {
      if (is_computation(actions_[at].op)) {
        before(at);
      }
      result_.push_back(actions_[at]);
      drop_what_is_done(at + 1);
    }
    return std::move(result_);
  }

 private:
  void before(std::size_t at) {
    // Room for those needed next, at the expense of those needed last: of all orders this one
    // gathers least (Belady).
    const std::vector<int> all = stages_needed(actions_, at, actions_.size());
    const std::size_t ahead = std::min(budget_, all.size());
    for (std::size_t i = 0; i < ahead; ++i) {
      if (std::ranges::count(gathered_, all[i]) != 0) {
        continue;
      }
      if (gathered_.size() == budget_) {
        drop(*std::ranges::max_element(
            gathered_, {}, [&](int stage) { return std::ranges::find(all, stage) - all.begin(); }));
      }
      gathered_.push_back(all[i]);
      result_.push_back({.op = Op::unshard, .stage = all[i]});
    }
  }
  void drop_what_is_done(std::size_t next) {
    const std::vector<int> needed = stages_needed(actions_, next, actions_.size());
    for (const int stage : std::vector<int>(gathered_)) {
      if (std::ranges::count(needed, stage) == 0) {
        drop(stage);
      }
    }
  }
  void drop(int stage) {
    std::erase(gathered_, stage);
    result_.push_back({.op = Op::reshard, .stage = stage});
  }

  const std::vector<Action>& actions_;
  std::size_t budget_;
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
