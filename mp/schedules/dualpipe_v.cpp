// DualPipe-V: two stages a rank, placed as a V; in the middle of the step, each forward runs beside
// a backward of another micro-batch, so that one computes while the other communicates.
// Cost: bubble (p - 1) (F&B + B - 3 W), F&B being a pair's time; each rank holds up to 2 p + 1
// micro-batches of half its layers.
// Use: where messages take long, as between experts. Source: DeepSeek's DualPipe, "cut in half" by
// Sea AI Lab; the order is torch.distributed.pipelining's, its eight steps in ours.
#include "comm/base/check.hpp"
#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

std::string dualpipe_v_refusal(const PipelineShape& shape) {
  if (shape.microbatches < 2 * shape.ranks) {
    return text("dualpipe_v over ", shape.ranks, " ranks needs ", 2 * shape.ranks,
                " micro-batches or more, one for each stage, not ", shape.microbatches);
  }
  const std::string refusal = needs_stages_per_rank("dualpipe_v", shape, 2);
  return refusal.empty() ? needs_active_microbatches("dualpipe_v", shape, 2 * shape.ranks + 1)
                         : refusal;
}

std::vector<Action> dualpipe_v_rank(const PipelineShape& shape, int rank) {
  const int down = rank, up = 2 * shape.ranks - 1 - rank;  // the stages on the V's two arms
  const int behind = shape.ranks - rank - 1;
  ActionList list;
  const auto repeat = [](int times, const auto& turn) {
    for (int time = 0; time < times; ++time) {
      turn(time);
    }
  };
  repeat(2 * behind, [&](int) { list.forward(down); });
  repeat(rank + 1, [&](int) { list.forward(down), list.forward(up); });
  repeat(behind, [&](int) { list.backward_input(up), list.backward_weight(), list.forward(up); });
  repeat(shape.microbatches - 2 * shape.ranks + rank + 1, [&](int time) {
    // At the turn of the V, the first backward has nothing to wait for that a forward could hide.
    if (time == 0 && behind == 0) {
      list.forward(down), list.backward(up);
    } else {
      list.overlap(down, up);
    }
    list.overlap(up, down);
  });
  repeat(behind, [&](int) { list.backward(up), list.overlap(up, down); });
  // Weight gradients of the second half are kept back for the bubble at the end. Ranks in turns
  // begin with the one arm or the other, for their neighbours are half a turn away.
  const int half = (rank + 1) / 2;
  repeat(rank + 1, [&](int time) {
    const bool split_up = time > half || (time == half && rank % 2 == 1);
    split_up ? list.backward_input(up) : list.backward(up);
    time >= half ? list.backward_input(down) : list.backward(down);
  });
  repeat(behind, [&](int) { list.backward_weight(), list.backward_input(down); });
  repeat(rank + 1, [&](int) { list.backward_weight(); });
  return list.actions();
}

Schedule make_dualpipe_v(const PipelineShape& shape) {
  Schedule schedule = v_schedule("dualpipe_v", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.actions[std::size_t(rank)] = dualpipe_v_rank(shape, rank);
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind dualpipe_v{
    .name = "dualpipe_v",
    .summary = "two stages a rank as a V, forwards beside backwards",
    .refusal = dualpipe_v_refusal,
    .make = make_dualpipe_v};

}  // namespace sprat::mp
