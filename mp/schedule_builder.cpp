#include "mp/schedule_builder.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::mp {
namespace {

Schedule empty_schedule(std::string_view name, const PipelineShape& shape) {
  return {.name = std::string(name),
          .microbatches = shape.microbatches,
          .rank_of_stage = {},
          .actions = std::vector<std::vector<Action>>(std::size_t(shape.ranks))};
}

}  // namespace

Schedule looped_schedule(std::string_view name, const PipelineShape& shape) {
  Schedule schedule = empty_schedule(name, shape);
  for (int stage = 0; stage < shape.ranks * shape.stages_per_rank; ++stage) {
    schedule.rank_of_stage.push_back(stage % shape.ranks);
  }
  return schedule;
}

Schedule v_schedule(std::string_view name, const PipelineShape& shape) {
  Schedule schedule = empty_schedule(name, shape);
  for (int stage = 0; stage < 2 * shape.ranks; ++stage) {
    schedule.rank_of_stage.push_back(stage < shape.ranks ? stage : 2 * shape.ranks - 1 - stage);
  }
  return schedule;
}

std::string needs_stages_per_rank(std::string_view name, const PipelineShape& shape, int stages) {
  if (shape.stages_per_rank == stages) {
    return {};
  }
  return text(name, " has ", stages, stages == 1 ? " stage" : " stages", " a rank, not ",
              shape.stages_per_rank, stages == 1 ? "; virtual_stages takes several" : "");
}

std::string needs_active_microbatches(std::string_view name, const PipelineShape& shape, int held) {
  if (shape.active_microbatches == 0 || shape.active_microbatches >= held) {
    return {};
  }
  return text(name, " with ", shape.ranks, " ranks and ", shape.microbatches,
              " micro-batches holds up to ", held, " of them, so active_microbatches cannot be ",
              shape.active_microbatches, "; take ", held, " or more, or interleaved or 1f1b");
}

void ActionList::forward(int stage) {
  actions_.push_back({.op = Op::forward, .stage = stage, .microbatch = next_[stage].forward++});
}

void ActionList::backward(int stage) {
  actions_.push_back({.op = Op::backward, .stage = stage, .microbatch = next_[stage].backward++});
}

void ActionList::backward_input(int stage) {
  // A whole backward takes its number of the same counter, so the two kinds mix.
  const Action action{
      .op = Op::backward_input, .stage = stage, .microbatch = next_[stage].backward++};
  actions_.push_back(action);
  owed_.push_back(action);
}

void ActionList::backward_weight() {
  if (!owed_.empty()) {
    backward_weight(owed_.front().stage);
  }
}

void ActionList::backward_weight(int stage) {
  const auto oldest = std::ranges::find(owed_, stage, &Action::stage);
  if (oldest != owed_.end()) {
    actions_.push_back(*oldest);
    actions_.back().op = Op::backward_weight;
    owed_.erase(oldest);
  }
}

void ActionList::overlap(int forward_stage, int backward_stage) {
  actions_.push_back({.op = Op::overlap,
                      .stage = forward_stage,
                      .microbatch = next_[forward_stage].forward++,
                      .other_stage = backward_stage,
                      .other_microbatch = next_[backward_stage].backward++});
}

}  // namespace sprat::mp
