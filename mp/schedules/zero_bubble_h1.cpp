// ZB-H1: 1F1B whose backward is two halves. The stage before waits for the input's gradient only,
// so rank r keeps weight gradients back for r micro-batches and computes them where it would stand
// idle.
// Cost: bubble (p - 1) / (3 m + p - 1) where the three parts take equal time; every rank holds
// min(p, m) micro-batches, as 1F1B's first rank.
// Use: where backward can be split. Paper: Qi et al., arXiv:2401.10241, section 2.3.
#include <algorithm>

#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

std::string zero_bubble_h1_refusal(const PipelineShape& shape) {
  const std::string refusal = needs_stages_per_rank("zero_bubble_h1", shape, 1);
  return refusal.empty() ? needs_active_microbatches("zero_bubble_h1", shape,
                                                     std::min(shape.ranks, shape.microbatches))
                         : refusal;
}

Schedule make_zero_bubble_h1(const PipelineShape& shape) {
  Schedule schedule = looped_schedule("zero_bubble_h1", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int ahead = std::min(shape.ranks - rank - 1, shape.microbatches);
    ActionList list;
    for (int step = 0; step < shape.microbatches + ahead; ++step) {
      if (step < shape.microbatches) {
        list.forward(rank);
      }
      if (step >= ahead) {
        list.backward_input(rank);
      }
      if (step >= ahead + rank) {
        list.backward_weight();
      }
    }
    for (int left = 0; left < rank; ++left) {
      list.backward_weight();
    }
    schedule.actions[std::size_t(rank)] = list.actions();
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind zero_bubble_h1{.name = "zero_bubble_h1",
                                         .summary = "1F1B whose weight gradients fill the bubble",
                                         .refusal = zero_bubble_h1_refusal,
                                         .make = make_zero_bubble_h1};

}  // namespace sprat::mp
