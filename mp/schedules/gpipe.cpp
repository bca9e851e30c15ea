// GPipe, which SMP calls simple: every forward, then every backward. With several stages a rank it
// is breadth-first (torch's LoopedBFS): all micro-batches on one stage before the next.
// Cost: bubble (p - 1) / (v m + p - 1) for v stages a rank; every rank holds all m micro-batches.
// Use: where memory does not matter, and to compare with. Papers: Huang et al., GPipe, 2019;
// Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv:2211.05953.
#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

std::string gpipe_refusal(const PipelineShape& shape) {
  return needs_active_microbatches("gpipe", shape, shape.microbatches);
}

Schedule make_gpipe(const PipelineShape& shape) {
  Schedule schedule = looped_schedule("gpipe", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    ActionList list;
    for (int chunk = 0; chunk < shape.stages_per_rank; ++chunk) {
      for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch) {
        list.forward(chunk * shape.ranks + rank);
      }
    }
    for (int chunk = shape.stages_per_rank; chunk-- > 0;) {
      for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch) {
        list.backward(chunk * shape.ranks + rank);
      }
    }
    schedule.actions[std::size_t(rank)] = list.actions();
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind gpipe{.name = "gpipe",
                                .summary = "every forward, then every backward",
                                .refusal = gpipe_refusal,
                                .make = make_gpipe,
                                .other_name = "simple"};

}  // namespace sprat::mp
