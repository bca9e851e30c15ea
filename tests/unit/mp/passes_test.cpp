// What passes put into schedules, and that schedules stay valid.
#include "mp/passes/passes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mp/actions.hpp"
#include "mp/text.hpp"
#include "mp/validate.hpp"
#include "sprat/error.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::mp {
namespace {

constexpr const char* two_microbatches = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n";

Schedule read(const char* lines) { return schedule_of_text(lines, "mine"); }

TEST(PipelinePasses, let_every_schedule_run_without_room_for_messages) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const PipelineShape& shape : shapes_of(*kind, 8, 32)) {
      const Schedule schedule = communicate(kind->make(shape));
      ASSERT_EQ(least_message_capacity(schedule), 0) << kind->name << words(shape);
      ASSERT_EQ(violations(schedule), std::vector<std::string>{}) << kind->name << words(shape);
    }
  }
}

TEST(PipelinePasses, leave_valid_schedules_in_every_order) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const PipelineShape& shape : shapes_of(*kind, 3, 7)) {
      const Schedule plain = kind->make(shape);
      const auto odd = [](int stage, int) { return stage % 2 == 1; };
      for (const Schedule& schedule :
           {recompute(plain, odd), reduce(plain), unshard(plain, 2), offload(plain, {}),
            offload(plain, {.horizon = 0, .keep_last = 0}),
            communicate(unshard(reduce(offload(recompute(plain, odd), {.horizon = 2})), 3)),
            reduce(unshard(offload(communicate(plain), {.horizon = 1}), 2))}) {
        ASSERT_EQ(violations(schedule), std::vector<std::string>{}) << kind->name << words(shape);
      }
    }
  }
}

TEST(PipelinePasses, put_messages_where_they_are_made) {
  EXPECT_EQ(to_text(communicate(read(two_microbatches))),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n");
}

TEST(PipelinePasses, let_the_lower_rank_receive_first) {
  // 0F3 ends when 1B0 ends.
  EXPECT_EQ(to_text(communicate(read("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3\n"
                                     "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n"))),
            "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 0RECV_B0 0SEND_F3 0B0 0RECV_B1 0B1 "
            "0RECV_B2 0B2 0RECV_B3 0B3\n"
            "1RECV_F0 1F0 1RECV_F1 1B0 1RECV_F2 1SEND_B0 1RECV_F3 1F1 1B1 1SEND_B1 1F2 1B2 "
            "1SEND_B2 1F3 1B3 1SEND_B3\n");
}

TEST(PipelinePasses, recompute_right_before_the_backward) {
  const auto first = [](int stage, int microbatch) { return stage == 0 && microbatch == 0; };
  EXPECT_EQ(to_text(recompute(read(two_microbatches), first)),
            "0F0 0F1 0RECOMPUTE0 0B0 0B1\n1F0 1B0 1F1 1B1\n");
  EXPECT_EQ(to_text(recompute(read("0F0 0I0 0W0\n"), first)), "0F0 0RECOMPUTE0 0I0 0W0\n");
}

TEST(PipelinePasses, reduce_after_the_last_contribution) {
  EXPECT_EQ(to_text(reduce(read("0F0 0F1 0I0 0I1 0W1 0W0\n"))),
            "0F0 0F1 0I0 0I1 0W1 0W0 0REDUCE_GRAD\n");
}

TEST(PipelinePasses, gather_once_where_the_budget_allows) {
  const char* looped = "0F0 1F0 2F0 2B0 1B0 0B0\n";
  EXPECT_EQ(to_text(unshard(read(looped), 3)),
            "0UNSHARD 1UNSHARD 2UNSHARD 0F0 1F0 2F0 2B0 2RESHARD 1B0 1RESHARD 0B0 0RESHARD\n");
  EXPECT_EQ(to_text(unshard(read(looped), 2)),
            "0UNSHARD 1UNSHARD 0F0 0RESHARD 2UNSHARD 1F0 2F0 2B0 2RESHARD 0UNSHARD 1B0 1RESHARD "
            "0B0 0RESHARD\n");
}

TEST(PipelinePasses, hold_no_more_parameters_than_the_budget) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const PipelineShape& shape : shapes_of(*kind, 4, 8)) {
      for (const int budget : {2, 3}) {
        for (const auto& actions : unshard(kind->make(shape), budget).actions) {
          int held = 0;
          for (const Action& action : actions) {
            held += (action.op == Op::unshard ? 1 : 0) - (action.op == Op::reshard ? 1 : 0);
            ASSERT_LE(held, budget) << kind->name << words(shape);
          }
          ASSERT_EQ(held, 0) << kind->name << words(shape);
        }
      }
    }
  }
}

TEST(PipelinePasses, store_behind_the_forward_and_load_by_the_horizon) {
  EXPECT_EQ(to_text(offload(read("0F0 0F1 0F2 0B0 0B1 0B2\n"), {.horizon = 1, .keep_last = 0})),
            "0F0 0STORE0 0F1 0STORE1 0LOAD0 0F2 0STORE2 0LOAD1 0B0 0LOAD2 0B1 0B2\n");
  EXPECT_EQ(to_text(offload(read("0F0 0F1 0F2 0B0 0B1 0B2\n"), {.horizon = 1, .keep_last = 1})),
            "0F0 0STORE0 0F1 0STORE1 0LOAD0 0F2 0LOAD1 0B0 0B1 0B2\n")
      << "the last forward's tape stays";
  EXPECT_EQ(to_text(offload(read("0F0 0F1 0B0 0B1\n"), {.horizon = 4, .keep_last = 0})),
            "0F0 0F1 0B0 0B1\n")
      << "all are needed within the horizon";
}

TEST(PipelinePasses, refuse_what_they_did_already) {
  const Schedule plain = read(two_microbatches);
  const Schedule sent = communicate(plain), gathered = unshard(plain, 1);
  const Schedule moved = offload(plain, {.horizon = 0, .keep_last = 0});
  EXPECT_THROW(communicate(sent), Error);
  EXPECT_THROW(unshard(gathered, 1), Error);
  EXPECT_THROW(offload(moved, {}), Error);
  EXPECT_THROW(unshard(plain, 0), Error);
  EXPECT_THROW(offload(plain, {.horizon = -1}), Error);
  EXPECT_THROW(communicate(read("0F0 0B0 2F0 2B0\n1F0 1B0\n")), Error) << "who waits for ever";
}

TEST(PipelinePasses, refuse_a_budget_that_an_overlap_exceeds) {
  const Schedule schedule = make_schedule(schedule_named("dualpipe_v"),
                                          {.ranks = 2, .microbatches = 4, .stages_per_rank = 2});
  EXPECT_THROW(unshard(schedule, 1), Error);
}

}  // namespace
}  // namespace sprat::mp
