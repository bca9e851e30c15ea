// SMP's interleaved pipeline, frozen: each rank that is free takes a backward that is ready, else a
// forward, as long as fewer than active_microbatches are between their first forward and their last
// backward.
// Cost: bubble (p - 1) / (m + p - 1) with active_microbatches >= p; more of them make up for
// latency, fewer cost time. SMP's default, p + 2, is ours.
// Use: jobs that come from SMP; several stages a rank too.
#include "comm/base/check.hpp"
#include "mp/schedule_builder.hpp"

namespace sprat::mp {
namespace {

// In units of a forward. The server that this follows decides as work arrives, so an order needs
// durations; a backward takes twice a forward in a transformer.
constexpr int forward_time = 1, backward_time = 2;

struct StageProgress {
  std::vector<int> forward_ends, backward_ends;  ///< Of the micro-batches so far, in order.
};

bool ended(const std::vector<int>& ends, std::size_t microbatch, int now) {
  return microbatch < ends.size() && ends[microbatch] <= now;
}

std::string interleaved_refusal(const PipelineShape& shape) {
  if (shape.active_microbatches <= shape.microbatches) {
    return {};
  }
  return text("interleaved cannot have ", shape.active_microbatches,
              " active micro-batches, for there are ", shape.microbatches,
              "; take active_microbatches ", shape.microbatches, " or less");
}

/// Starts what the rank does now and tells how long it takes; 0: it has nothing to do. The lowest
/// micro-batch goes first, as with SMP's deterministic server.
int start_one(const PipelineShape& shape, int rank, int now, std::vector<StageProgress>& stages,
              ActionList& list) {
  const int limit = shape.active_microbatches ? shape.active_microbatches : shape.ranks + 2;
  const std::size_t active = std::size_t(limit), none = std::size_t(shape.microbatches);
  const std::size_t last = stages.size() - 1;
  std::size_t backward = none, forward = none, backward_stage = 0, forward_stage = 0;
  for (std::size_t stage = std::size_t(rank); stage <= last; stage += std::size_t(shape.ranks)) {
    const auto& [forwards, backwards] = stages[stage];
    const std::size_t f = forwards.size(), b = backwards.size();
    if (b < backward && ended(forwards, b, now) &&
        (stage == last || ended(stages[stage + 1].backward_ends, b, now))) {
      backward = b, backward_stage = stage;
    }
    const bool ready = stage == 0 ? f < active || ended(backwards, f - active, now)
                                  : ended(stages[stage - 1].forward_ends, f, now);
    if (f < forward && ready) {
      forward = f, forward_stage = stage;
    }
  }
  if (backward < none) {
    list.backward(int(backward_stage));
    stages[backward_stage].backward_ends.push_back(now + backward_time);
    return backward_time;
  }
  if (forward < none) {
    list.forward(int(forward_stage));
    stages[forward_stage].forward_ends.push_back(now + forward_time);
    return forward_time;
  }
  return 0;
}

Schedule make_interleaved(const PipelineShape& shape) {
  Schedule schedule = looped_schedule("interleaved", shape);
  std::vector<StageProgress> stages(schedule.rank_of_stage.size());
  std::vector<ActionList> lists(std::size_t(shape.ranks));
  std::vector<int> free_at(std::size_t(shape.ranks));
  // All backwards of the first stage are the last to end, so the step ends with them.
  for (int now = 0; stages[0].backward_ends.size() < std::size_t(shape.microbatches); ++now) {
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      if (free_at[rank] <= now) {
        free_at[rank] = now + start_one(shape, int(rank), now, stages, lists[rank]);
      }
    }
  }
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    schedule.actions[rank] = lists[rank].actions();
  }
  return schedule;
}

}  // namespace

extern const ScheduleKind interleaved{
    .name = "interleaved",
    .summary = "SMP's: backwards first, at most active_microbatches at once",
    .refusal = interleaved_refusal,
    .make = make_interleaved};

}  // namespace sprat::mp
