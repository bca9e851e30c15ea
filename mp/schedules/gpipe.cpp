// GPipe, and SMP's simple pipeline: every forward, then every backward.
// Cost: bubble (p - 1) / (m + p - 1); every rank holds all m micro-batches.
// Use: where memory does not matter, and to compare with. Paper: Huang et al., GPipe, 2019.
#include <string>

#include "mp/schedule.hpp"

namespace sprat::mp {
namespace {

std::string refusal(const PipelineShape& shape) {
  if (shape.stages_per_rank != 1) {
    return "gpipe has one stage a rank, not " + std::to_string(shape.stages_per_rank) +
           "; virtual_stages takes several";
  }
  if (shape.active_microbatches != 0 && shape.active_microbatches < shape.microbatches) {
    return "gpipe holds all " + std::to_string(shape.microbatches) +
           " micro-batches at once, so active_microbatches cannot be " +
           std::to_string(shape.active_microbatches) + "; interleaved takes it";
  }
  return {};
}

Schedule make(const PipelineShape& shape) {
  Schedule schedule{.name = "gpipe",
                    .microbatches = shape.microbatches,
                    .rank_of_stage = {},
                    .actions = std::vector<std::vector<Action>>(std::size_t(shape.ranks))};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.rank_of_stage.push_back(rank);
    auto& actions = schedule.actions[std::size_t(rank)];
    for (const Op op : {Op::forward, Op::backward}) {
      for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch) {
        actions.push_back({.op = op, .stage = rank, .microbatch = microbatch});
      }
    }
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind gpipe{.name = "gpipe",
                                .summary = "every forward, then every backward",
                                .refusal = refusal,
                                .make = make};

}  // namespace sprat::mp
