// Slots for messages, planned.
#include "mp/handovers.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::mp {
namespace {

namespace handed_over {

constexpr std::size_t most = 1000;

HandoverPlan planned(const Schedule& schedule, int rank, int ahead = 2) {
  return plan_handovers(schedule, rank,
                        std::vector<std::size_t>(schedule.rank_of_stage.size(), most), ahead);
}

std::size_t place_of(const Schedule& schedule, int rank, const Action& action) {
  const auto& actions = schedule.actions[std::size_t(rank)];
  return std::size_t(std::ranges::find(actions, action) - actions.begin());
}

TEST(HandoverPlan, grows_lives_beyond_what_the_schedule_says_and_never_shrinks_them) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const PipelineShape& shape : shapes_of(*kind, 4, 8)) {
      const Schedule schedule = communicate(make_schedule(*kind, shape));
      for (int rank = 0; rank < shape.ranks; ++rank) {
        for (const Handover& one : planned(schedule, rank).handovers) {
          if (one.from == one.to) {
            continue;
          }
          Action action{.op = one.forward ? Op::send_forward : Op::send_backward,
                        .stage = one.forward ? one.stage : one.stage + 1,
                        .microbatch = one.microbatch};
          if (one.from == rank) {
            EXPECT_GT(one.end, place_of(schedule, rank, action)) << kind->name << words(shape);
          } else {
            action = other_end_of(action);
            EXPECT_LE(one.begin, place_of(schedule, rank, action)) << kind->name << words(shape);
          }
        }
      }
    }
  }
}

TEST(HandoverPlan, needs_no_more_memory_for_more_micro_batches) {
  for (const char* name : {"gpipe", "1f1b", "zero_bubble_h1", "interleaved"}) {
    const ScheduleKind& kind = schedule_named(name);
    const auto bytes = [&](int microbatches, int rank) {
      const PipelineShape shape{.ranks = 4, .microbatches = microbatches};
      return planned(communicate(make_schedule(kind, shape)), rank).slots.total();
    };
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(bytes(16, rank), bytes(64, rank)) << name << ", rank " << rank;
    }
  }
}

TEST(HandoverPlan, of_one_rank_with_one_stage_is_empty) {
  const Schedule schedule = make_schedule(schedule_named("1f1b"), {.ranks = 1, .microbatches = 4});
  EXPECT_EQ(planned(schedule, 0).handovers.size(), 0u);
  EXPECT_EQ(planned(schedule, 0).slots.total(), 0u);
}

TEST(HandoverPlan, takes_longer_lives_for_more_messages_ahead) {
  const Schedule schedule =
      communicate(make_schedule(schedule_named("1f1b"), {.ranks = 4, .microbatches = 8}));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_LE(planned(schedule, rank, 0).slots.total(), planned(schedule, rank, 1).slots.total());
    EXPECT_LE(planned(schedule, rank, 1).slots.total(), planned(schedule, rank, 4).slots.total());
  }
}

}  // namespace handed_over
}  // namespace
}  // namespace sprat::mp
