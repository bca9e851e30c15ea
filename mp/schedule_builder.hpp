// What the files of schedules/ have in common: where stages lie, lists of actions that count their
// micro-batches themselves, and refusals that several give.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// Stage s is on rank s mod p.
Schedule looped_schedule(std::string_view name, const PipelineShape& shape);
/// Two stages a rank: 0 to p - 1 on ranks 0 to p - 1, then back, so that rank 0 has the first and
/// the last.
Schedule v_schedule(std::string_view name, const PipelineShape& shape);

/// Empty if the shape has `stages` stages a rank.
std::string needs_stages_per_rank(std::string_view name, const PipelineShape& shape, int stages);
/// Empty if the shape's limit, if any, lets a rank hold `held` micro-batches.
std::string needs_active_microbatches(std::string_view name, const PipelineShape& shape, int held);

/// One rank's actions. Each stage's micro-batches come in order, forward and backward.
class ActionList final {
 public:
  void forward(int stage);
  void backward(int stage);
  void backward_input(int stage);
  /// Of the oldest backward_input that has none yet; does nothing if there is none.
  void backward_weight();
  /// The same of one stage.
  void backward_weight(int stage);
  void overlap(int forward_stage, int backward_stage);

  const std::vector<Action>& actions() const noexcept { return actions_; }

 private:
  struct Counts {
    int forward = 0, backward = 0;
  };
  std::map<int, Counts> next_;
  std::vector<Action> owed_;
  std::vector<Action> actions_;
};

}  // namespace sprat::mp
