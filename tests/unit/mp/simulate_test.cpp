// Schedules in virtual time, against closed forms and against steps played by hand.
#include "mp/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mp/schedule.hpp"
#include "sprat/error.hpp"

namespace sprat::mp {
namespace {

namespace simulated {

using ::testing::HasSubstr;

Action forward(int stage, int microbatch) {
  return {.op = Op::forward, .stage = stage, .microbatch = microbatch};
}
Action of(Op op, int stage, int microbatch = no_microbatch) {
  return {.op = op, .stage = stage, .microbatch = microbatch};
}

/// What was computed by exact fractions, and rounded at most once for each action of the longest
/// chain that led there.
double error_bound(const Schedule& schedule, double value) {
  std::size_t actions = 0;
  for (const auto& of_rank : schedule.actions) {
    actions += of_rank.size();
  }
  return value * double(actions) * std::numeric_limits<double>::epsilon();
}

std::string complaint(const Schedule& schedule, int capacity = unbounded_messages) {
  try {
    simulate(schedule, uniform_costs(schedule, {}), capacity);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

/// One stage on each of two ranks.
Schedule two_ranks(std::vector<Action> first, std::vector<Action> second, int microbatches = 1) {
  return {.name = "by hand",
          .microbatches = microbatches,
          .rank_of_stage = {0, 1},
          .actions = {std::move(first), std::move(second)}};
}

std::vector<int> peaks(const Timeline& made) {
  std::vector<int> peaks;
  for (const RankUse& use : made.ranks) {
    peaks.push_back(use.peak_microbatches);
  }
  return peaks;
}

TEST(PipelineSimulator, gpipe_takes_what_its_closed_form_says) {
  struct Golden {
    int ranks, microbatches;
    double makespan;
  };
  for (const Golden& golden : {Golden{2, 2, 9},
                               {2, 4, 15},
                               {2, 8, 27},
                               {4, 4, 21},
                               {4, 8, 33},
                               {4, 16, 57},
                               {8, 8, 45},
                               {8, 32, 117}}) {
    const Schedule schedule = make_schedule(
        schedule_named("gpipe"), {.ranks = golden.ranks, .microbatches = golden.microbatches});
    const Timeline made = simulate(schedule, uniform_costs(schedule, {}));
    EXPECT_EQ(made.makespan, golden.makespan) << golden.ranks << ", " << golden.microbatches;
    const double bubble = double(golden.ranks - 1) / double(golden.microbatches + golden.ranks - 1);
    EXPECT_NEAR(made.bubble, bubble, error_bound(schedule, 1));
    EXPECT_EQ(peaks(made), std::vector<int>(std::size_t(golden.ranks), golden.microbatches));
  }
}

TEST(PipelineSimulator, messages_take_latency_and_bytes_one_after_another) {
  const Schedule schedule =
      two_ranks({forward(0, 0), forward(0, 1)}, {forward(1, 0), forward(1, 1)}, 2);
  PipelineCosts costs = uniform_costs(schedule, {.forward = 1, .output_bytes = 8});
  costs.latency = 0.5;
  costs.seconds_per_byte = 0.25;
  const Timeline made = simulate(schedule, costs);
  // Sent at 1 and 2; the wire is busy from 1 to 3 and from 3 to 5.
  EXPECT_EQ(made.spans[1][0].start, 3.5);
  EXPECT_EQ(made.spans[1][1].start, 5.5);
  EXPECT_EQ(made.makespan, 6.5);
  EXPECT_EQ(made.ranks[1].exposed_communication, 2.5 + 1);
  EXPECT_EQ(made.ranks[0].exposed_communication, 0);
}

TEST(PipelineSimulator, ranks_that_compute_together_share_cores) {
  const Schedule schedule = make_schedule(schedule_named("gpipe"), {.ranks = 2, .microbatches = 2});
  PipelineCosts costs = uniform_costs(schedule, {});
  costs.cores = 1;
  const Timeline made = simulate(schedule, costs);
  const auto& first = made.spans[0];
  const auto& second = made.spans[1];
  EXPECT_EQ(first[1].end, 3);  // beside the second rank's first forward, each at half speed
  EXPECT_EQ(second[0].end, 3);
  EXPECT_EQ(second[1].end, 4);  // alone
  EXPECT_EQ(second[2].end, 6);
  EXPECT_EQ(first[2].end, 10);
  EXPECT_EQ(made.makespan, 12) << "one core does all of the work";
  costs.cores = 2;
  EXPECT_EQ(simulate(schedule, costs).makespan, 9);
}

TEST(PipelineSimulator, actions_that_communicate_take_what_goes_without_saying) {
  const std::vector<Action> first = {forward(0, 0), of(Op::backward, 0, 0)};
  const std::vector<Action> second = {forward(1, 0), of(Op::backward, 1, 0)};
  const Schedule spoken =
      two_ranks({first[0], of(Op::send_forward, 0, 0), of(Op::receive_backward, 0, 0), first[1]},
                {of(Op::receive_forward, 1, 0), second[0], second[1], of(Op::send_backward, 1, 0)});
  PipelineCosts costs = uniform_costs(spoken, {});
  costs.latency = 0.25;
  for (const int capacity : {0, 1, unbounded_messages}) {
    const Timeline made = simulate(spoken, costs, capacity);
    EXPECT_EQ(made.makespan, 6.5) << capacity;
    EXPECT_EQ(made.ranks[0].exposed_communication, 0.25);
    EXPECT_EQ(made.ranks[1].exposed_communication, 0.25);
  }
  EXPECT_EQ(simulate(two_ranks(first, second), costs).makespan, 6.5);
}

TEST(PipelineSimulator, sends_without_room_hold_their_rank) {
  const Schedule schedule = two_ranks(
      {forward(0, 0), of(Op::send_forward, 0, 0), forward(0, 1), of(Op::send_forward, 0, 1)},
      {of(Op::receive_forward, 1, 0), forward(1, 0), of(Op::receive_forward, 1, 1), forward(1, 1)},
      2);
  PipelineCosts costs = uniform_costs(schedule, {});
  costs.stages[1].forward = 4;
  // The second message is ready at 2, and the second rank comes to its receive at 5.
  EXPECT_EQ(simulate(schedule, costs, 0).spans[0][3].start, 5);
  EXPECT_EQ(simulate(schedule, costs, 0).ranks[0].exposed_communication, 3);
  EXPECT_EQ(simulate(schedule, costs, 1).spans[0][3].start, 2);
}

TEST(PipelineSimulator, deadlocks_say_who_waits_for_what) {
  const Schedule crossed =
      two_ranks({forward(0, 0), of(Op::receive_backward, 0, 0), of(Op::send_forward, 0, 0)},
                {of(Op::receive_forward, 1, 0), forward(1, 0), of(Op::backward, 1, 0),
                 of(Op::send_backward, 1, 0)});
  EXPECT_EQ(complaint(crossed),
            "no rank can go on: rank 0 at its action 1, 0RECV_B0, waits for 1SEND_B0 of rank 1; "
            "rank 1 at its action 0, 1RECV_F0, waits for 0SEND_F0 of rank 0");
  // Both send first: that wants room for a message on the way.
  const Schedule both_send =
      two_ranks({forward(0, 0), of(Op::send_forward, 0, 0), forward(0, 1),
                 of(Op::send_forward, 0, 1), of(Op::receive_backward, 0, 0)},
                {of(Op::receive_forward, 1, 0), forward(1, 0), of(Op::backward, 1, 0),
                 of(Op::send_backward, 1, 0), of(Op::receive_forward, 1, 1)},
                2);
  EXPECT_EQ(complaint(both_send, 1), "none");
  EXPECT_EQ(
      complaint(both_send, 0),
      "no rank can go on: rank 0 at its action 3, 0SEND_F1, waits for rank 1 to reach 1RECV_F1; "
      "rank 1 at its action 3, 1SEND_B0, waits for rank 0 to reach 0RECV_B0");
  EXPECT_EQ(complaint(two_ranks({}, {forward(1, 0)})),
            "no rank can go on: rank 1 at its action 0, 1F0, waits for 0F0 of rank 0");
  EXPECT_EQ(complaint(two_ranks({forward(0, 0), of(Op::store, 0, 0), of(Op::backward, 0, 0)},
                                {forward(1, 0), of(Op::backward, 1, 0)})),
            "no rank can go on: rank 0 at its action 2, 0B0, waits for 0LOAD0 of rank 0");
}

TEST(PipelineSimulator, actions_of_no_stage_or_microbatch_are_refused) {
  for (const Action& action : {forward(1, 0), forward(-1, 0), forward(2, 0), forward(0, 1),
                               of(Op::forward, 0), of(Op::send_backward, 0, 0)}) {
    EXPECT_THAT(complaint(two_ranks({action}, {})), HasSubstr("rank 0 has "));
  }
  EXPECT_EQ(complaint(two_ranks({of(Op::unshard, 0)}, {})), "none");
}

TEST(PipelineSimulator, costs_that_are_no_times_are_refused) {
  const Schedule schedule = two_ranks({forward(0, 0)}, {forward(1, 0)});
  for (const double seconds : {-1., std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THROW(simulate(schedule, uniform_costs(schedule, {.load = seconds})), Error) << seconds;
    PipelineCosts costs = uniform_costs(schedule, {});
    costs.latency = seconds;
    EXPECT_THROW(simulate(schedule, costs), Error) << seconds;
  }
  EXPECT_THROW(simulate(schedule, {.stages = {{}}}), Error) << "one of two stages";
}

/// Layers of one rank as stages: all forwards, stores of all but the last `kept`, and loads as a
/// horizon of so many loaded tapes starts them.
Schedule offloaded_layers(int layers, int kept, int horizon) {
  Schedule schedule{.name = "by hand",
                    .microbatches = 1,
                    .rank_of_stage = std::vector<int>(std::size_t(layers)),
                    .actions = {{}}};
  std::vector<Action>& actions = schedule.actions[0];
  const int stored = layers - kept;
  for (int layer = 0; layer < layers; ++layer) {
    actions.push_back(forward(layer, 0));
    if (layer < stored) {
      actions.push_back(of(Op::store, layer, 0));
    }
  }
  int loaded = 0;
  for (int layer = layers - 1; layer >= 0; --layer) {
    const int consumed = std::max(0, stored - 1 - layer);
    for (; loaded < std::min(stored, consumed + horizon); ++loaded) {
      actions.push_back(of(Op::load, stored - 1 - loaded, 0));
    }
    actions.push_back(of(Op::backward, layer, 0));
  }
  return schedule;
}

TEST(PipelineSimulator, backwards_stall_for_loads_as_the_model_of_offload_says) {
  struct Golden {
    double load;
    int kept, horizon;
    double stall;
  };
  // Twelve layers, a store as long as a forward, a backward as long as two.
  for (const Golden& golden : {Golden{0.5, 1, 1, 5},
                               {0.5, 1, 2, 0},
                               {0.5, 1, 8, 0},
                               {1, 1, 1, 10},
                               {1, 1, 2, 0},
                               {1, 1, 4, 0},
                               {2, 1, 1, 20},
                               {2, 1, 2, 0},
                               {3, 1, 1, 31},
                               {3, 1, 2, 11},
                               {3, 1, 4, 11},
                               {3, 1, 8, 11},
                               {4, 1, 1, 42},
                               {4, 1, 2, 22},
                               {4, 1, 8, 22},
                               {2, 0, 2, 3}}) {
    const Schedule schedule = offloaded_layers(12, golden.kept, golden.horizon);
    const Timeline made =
        simulate(schedule, uniform_costs(schedule, {.store = 1, .load = golden.load}));
    EXPECT_EQ(made.ranks[0].load_stall, golden.stall)
        << "load " << golden.load << ", kept " << golden.kept << ", horizon " << golden.horizon;
    EXPECT_EQ(made.makespan, 36 + golden.stall);
  }
}

TEST(PipelineSimulator, stored_tapes_are_held_until_they_have_left) {
  const Schedule schedule = offloaded_layers(12, 1, 2);
  const StageCosts costs{.store = 1, .load = 2, .activation_bytes = 100};
  const Timeline made = simulate(schedule, uniform_costs(schedule, costs));
  // One is computed while the one before leaves; later two are loaded beside the one that is kept.
  EXPECT_EQ(made.ranks[0].peak_activation_bytes, 300u);
  EXPECT_EQ(made.ranks[0].peak_microbatches, 12) << "wherever their tapes are";
}

TEST(PipelineSimulator, recomputation_holds_inputs_and_one_tape) {
  const Schedule schedule =
      two_ranks({forward(0, 0), forward(0, 1), of(Op::recompute, 0, 0), of(Op::backward, 0, 0),
                 of(Op::recompute, 0, 1), of(Op::backward, 0, 1)},
                {forward(1, 0), of(Op::backward, 1, 0), forward(1, 1), of(Op::backward, 1, 1)}, 2);
  const StageCosts costs{.recompute = 0.5, .activation_bytes = 100, .input_bytes = 10};
  const Timeline made = simulate(schedule, uniform_costs(schedule, costs));
  EXPECT_EQ(made.ranks[0].peak_activation_bytes, 110u);
  EXPECT_EQ(made.ranks[1].peak_activation_bytes, 100u);
  EXPECT_EQ(made.ranks[0].busy, 2 * 3.5);
}

TEST(PipelineSimulator, tapes_live_until_the_weight_gradient) {
  const Schedule schedule{.name = "by hand",
                          .microbatches = 2,
                          .rank_of_stage = {0},
                          .actions = {{forward(0, 0), of(Op::backward_input, 0, 0), forward(0, 1),
                                       of(Op::backward_input, 0, 1), of(Op::backward_weight, 0, 0),
                                       of(Op::backward_weight, 0, 1)}}};
  EXPECT_EQ(peaks(simulate(schedule, uniform_costs(schedule, {}))), std::vector<int>{2});
}

TEST(PipelineSimulator, gathers_are_waited_for_and_reductions_are_not) {
  const Schedule schedule{.name = "by hand",
                          .microbatches = 1,
                          .rank_of_stage = {0, 0},
                          .actions = {{of(Op::unshard, 0), of(Op::unshard, 1), forward(0, 0),
                                       forward(1, 0), of(Op::backward, 1, 0), of(Op::reduce, 1),
                                       of(Op::backward, 0, 0), of(Op::reduce, 0)}}};
  const Timeline made = simulate(schedule, uniform_costs(schedule, {.unshard = 1.5, .reduce = 1}));
  EXPECT_EQ(made.ranks[0].exposed_communication, 1.5 + 0.5);
  EXPECT_EQ(made.spans[0][5].end, 7);  // beside the other stage's backward
  EXPECT_EQ(made.makespan, 9);
}

TEST(PipelineSimulator, overlap_takes_both_and_gives_both) {
  const Schedule schedule{.name = "by hand",
                          .microbatches = 2,
                          .rank_of_stage = {0},
                          .actions = {{forward(0, 0),
                                       {.op = Op::overlap,
                                        .stage = 0,
                                        .microbatch = 1,
                                        .other_stage = 0,
                                        .other_microbatch = 0},
                                       of(Op::backward, 0, 1)}}};
  const Timeline made = simulate(schedule, uniform_costs(schedule, {}));
  EXPECT_EQ(made.makespan, 6);
  EXPECT_EQ(made.bubble, 0);
  EXPECT_EQ(peaks(made), std::vector<int>{2});
}

}  // namespace simulated
}  // namespace
}  // namespace sprat::mp
