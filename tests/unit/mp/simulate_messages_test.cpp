// The simulator agrees with the validator and the pass that makes messages.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/schedule.hpp"
#include "mp/simulate.hpp"
#include "mp/validate.hpp"
#include "sprat/error.hpp"

namespace sprat::mp {
namespace {

namespace spoken {

template <class Test>
void for_each_schedule(const Test& test) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const int stages : {1, 2}) {
      for (const int ranks : {2, 4}) {
        const PipelineShape shape{.ranks = ranks, .microbatches = 8, .stages_per_rank = stages};
        if (kind->refusal(shape).empty()) {
          SCOPED_TRACE(testing::Message()
                       << kind->name << " on " << ranks << " ranks of " << stages << " stages");
          test(make_schedule(*kind, shape));
        }
      }
    }
  }
}

/// Every receive right before what needs it, every send right behind what makes it.
Schedule with_messages_at_their_uses(const Schedule& schedule) {
  Schedule out = schedule;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    auto& actions = out.actions[std::size_t(rank)];
    actions.clear();
    const auto add = [&](Op op, const Action& part, int stage) {
      if (stage >= 0 && stage < schedule.stages() &&
          schedule.rank_of_stage[std::size_t(stage)] != rank) {
        actions.push_back({.op = op, .stage = part.stage, .microbatch = part.microbatch});
      }
    };
    for (const Action& action : schedule.actions[std::size_t(rank)]) {
      for (const Action& part : parts_of(action)) {
        if (part.op == Op::forward) {
          add(Op::receive_forward, part, part.stage - 1);
        } else if (gives_input_gradient(part.op)) {
          add(Op::receive_backward, part, part.stage + 1);
        }
      }
      actions.push_back(action);
      for (const Action& part : parts_of(action)) {
        if (part.op == Op::forward) {
          add(Op::send_forward, part, part.stage + 1);
        } else if (gives_input_gradient(part.op)) {
          add(Op::send_backward, part, part.stage - 1);
        }
      }
    }
  }
  return out;
}

bool runs(const Schedule& schedule, int capacity) {
  try {
    simulate(schedule, uniform_costs(schedule, {}), capacity);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(PipelineMessages, at_their_uses_cost_what_goes_without_saying) {
  for_each_schedule([](const Schedule& schedule) {
    PipelineCosts costs = uniform_costs(schedule, {});
    costs.latency = 0.25;
    const Schedule spoken = with_messages_at_their_uses(schedule);
    EXPECT_EQ(simulate(spoken, costs).makespan, simulate(schedule, costs).makespan);
  });
}

TEST(PipelineMessages, run_with_the_least_capacity_and_not_with_less) {
  for_each_schedule([](const Schedule& schedule) {
    const Schedule spoken = with_messages_at_their_uses(schedule);
    const auto capacity = least_message_capacity(spoken);
    ASSERT_TRUE(capacity.has_value());
    EXPECT_TRUE(runs(spoken, *capacity)) << *capacity;
    EXPECT_TRUE(*capacity == 0 || !runs(spoken, *capacity - 1)) << *capacity;
  });
}

TEST(PipelineMessages, of_the_pass_run_where_each_send_waits) {
  for_each_schedule([](const Schedule& schedule) { EXPECT_TRUE(runs(communicate(schedule), 0)); });
}

TEST(PipelineMessages, do_not_change_what_ranks_hold) {
  for_each_schedule([](const Schedule& schedule) {
    const std::vector<int> peaks = peak_microbatches(schedule);
    const Timeline made = simulate(schedule, uniform_costs(schedule, {}));
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
      EXPECT_EQ(made.ranks[rank].peak_microbatches, peaks[rank]) << "rank " << rank;
    }
  });
}

}  // namespace spoken
}  // namespace
}  // namespace sprat::mp
