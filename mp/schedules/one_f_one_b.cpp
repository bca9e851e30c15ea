// 1F1B: a rank runs ahead by as many forwards as there are ranks behind it, then a forward and a
// backward in turns.
// Cost: bubble (p - 1) / (m + p - 1), as GPipe; rank r holds min(p - r, m) micro-batches, and at
// most active_microbatches, which below p costs time.
// Use: the usual choice with one stage a rank. Paper: Narayanan et al., PipeDream, 2019.
#include <algorithm>

#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

std::string one_f_one_b_refusal(const PipelineShape& shape) {
  return needs_stages_per_rank("1f1b", shape, 1);
}

Schedule make_one_f_one_b(const PipelineShape& shape) {
  Schedule schedule = looped_schedule("1f1b", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    int ahead = std::min(shape.ranks - rank - 1, shape.microbatches);
    if (shape.active_microbatches > 0) {
      // The forward of each turn comes before its backward, so one more is held than is run ahead.
      ahead = std::min(ahead, shape.active_microbatches - 1);
    }
    ActionList list;
    for (int step = 0; step < shape.microbatches + ahead; ++step) {
      if (step < shape.microbatches) {
        list.forward(rank);
      }
      if (step >= ahead) {
        list.backward(rank);
      }
    }
    schedule.actions[std::size_t(rank)] = list.actions();
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind one_f_one_b{.name = "1f1b",
                                      .summary = "a forward and a backward in turns",
                                      .refusal = one_f_one_b_refusal,
                                      .make = make_one_f_one_b};

}  // namespace sprat::mp
