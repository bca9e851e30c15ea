// Megatron's interleaved 1F1B: stages go around the ranks v times, and a rank takes its stages in
// turns, a group of micro-batches each. With m below p or m between multiples of p, groups have
// m / rounds micro-batches, as torch.distributed.pipelining has them.
// Cost: bubble (p - 1) / (v m + p - 1), and v times the messages of 1F1B; rank r holds up to
// (v - 1) p + 2 (p - r - 1) + 1 micro-batches, each of a v-th of its layers.
// Use: where p is large against m. Paper: Narayanan et al., arXiv:2104.04473.
#include <algorithm>

#include "comm/base/check.hpp"
#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

int rounds_of(const PipelineShape& shape) { return std::max(1, shape.microbatches / shape.ranks); }

/// Forwards before the first backward.
int forwards_ahead(const PipelineShape& shape, int rank) {
  const int group = shape.microbatches / rounds_of(shape);
  const int ahead = (shape.stages_per_rank - 1) * group + 2 * (shape.ranks - rank - 1);
  return std::min(ahead, shape.microbatches * shape.stages_per_rank);
}

std::string virtual_stages_refusal(const PipelineShape& shape) {
  const int rounds = rounds_of(shape), over = shape.microbatches % rounds;
  if (over != 0) {
    return text("virtual_stages takes ", shape.microbatches, " micro-batches in ", rounds,
                " groups over ", shape.ranks, " ranks, which cannot be equal; take ",
                shape.microbatches - over, " or ", shape.microbatches - over + rounds,
                " micro-batches");
  }
  return needs_active_microbatches(
      "virtual_stages", shape,
      std::min(forwards_ahead(shape, 0) + 1, shape.microbatches * shape.stages_per_rank));
}

Schedule make_virtual_stages(const PipelineShape& shape) {
  Schedule schedule = looped_schedule("virtual_stages", shape);
  const int chunks = shape.stages_per_rank, group = shape.microbatches / rounds_of(shape);
  const int all = shape.microbatches * chunks;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int ahead = forwards_ahead(shape, rank);
    ActionList list;
    for (int step = 0; step < all + ahead; ++step) {
      if (step < all) {
        list.forward(step / group % chunks * shape.ranks + rank);
      }
      if (step >= ahead) {
        const int chunk = chunks - 1 - (step - ahead) / group % chunks;
        list.backward(chunk * shape.ranks + rank);
      }
    }
    schedule.actions[std::size_t(rank)] = list.actions();
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind virtual_stages{.name = "virtual_stages",
                                         .summary = "Megatron's interleaved 1F1B",
                                         .refusal = virtual_stages_refusal,
                                         .make = make_virtual_stages};

}  // namespace sprat::mp
