// ZB-V: two stages a rank, placed as a V, so that the last stage is on rank 0 and its backward
// starts where its forward ends; weight gradients fill what is left.
// Cost: no bubble where forward, input and weight gradient take equal time, but p - 1 at either
// end; each rank holds up to 2 p micro-batches of half its layers, as many layers as 1F1B's first
// rank. Use: where backward can be split and a rank may hold both ends. Paper: Qi et al.,
// arXiv:2405.15362; the order is torch.distributed.pipelining's.
#include "comm/base/check.hpp"
#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

std::string zb_v_refusal(const PipelineShape& shape) {
  if (shape.microbatches < 2 * shape.ranks - 1) {
    return text("zb_v over ", shape.ranks, " ranks needs ", 2 * shape.ranks - 1,
                " micro-batches or more to fill the pipeline, not ", shape.microbatches);
  }
  const std::string refusal = needs_stages_per_rank("zb_v", shape, 2);
  return refusal.empty() ? needs_active_microbatches("zb_v", shape, 2 * shape.ranks) : refusal;
}

std::vector<Action> zb_v_rank(const PipelineShape& shape, int rank) {
  const int down = rank, up = 2 * shape.ranks - 1 - rank;  // the stages on the V's two arms
  const int ahead = shape.ranks - rank;
  ActionList list;
  const auto repeat = [](int times, const auto& turn) {
    for (int time = 0; time < times; ++time) {
      turn();
    }
  };
  const auto backward_at_once = [&](int stage) {
    list.backward_input(stage);
    list.backward_weight(stage);
  };
  repeat(2 * ahead - 1, [&] { list.forward(down); });
  repeat(rank, [&] { list.forward(up), list.forward(down); });
  repeat(ahead, [&] { list.forward(up), backward_at_once(up); });
  // So far 2 p - 1 - rank forwards went down and p up.
  int downs = 2 * ahead - 1 + rank;
  for (int ups = shape.ranks; ups < shape.microbatches; ++ups) {
    if (downs++ < shape.microbatches) {
      list.forward(down);
    }
    backward_at_once(down);
    list.forward(up);
    backward_at_once(up);
  }
  repeat(rank, [&] { list.backward_input(down), list.backward_input(up); });
  repeat(ahead, [&] { list.backward_input(down), list.backward_weight(down); });
  repeat(rank, [&] { list.backward_weight(up); });
  repeat(rank, [&] { list.backward_weight(down); });
  return list.actions();
}

Schedule make_zb_v(const PipelineShape& shape) {
  Schedule schedule = v_schedule("zb_v", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.actions[std::size_t(rank)] = zb_v_rank(shape, rank);
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind zb_v{.name = "zb_v",
                               .summary = "two stages a rank as a V, weight gradients in the gaps",
                               .refusal = zb_v_refusal,
                               .make = make_zb_v};

}  // namespace sprat::mp
