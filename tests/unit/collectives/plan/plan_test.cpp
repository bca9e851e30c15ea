// Plans as they are built: rounds, lanes, messages, scratch, counts.
#include "collectives/plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "collectives/plan/planner.hpp"

namespace sprat::collectives {

namespace {

using ::testing::HasSubstr;

Problem gather_over(const std::vector<int>& hosts) {
  Problem problem;
  problem.collective = Collective::all_gather;
  problem.grouping = std::make_shared<const Grouping>(hosts);
  problem.count = 100;
  return problem;
}

void expect_after(const Plan& plan, std::uint32_t step, IndexRange after) {
  EXPECT_EQ(plan.steps[step].after.first, after.first) << "step " << step;
  EXPECT_EQ(plan.steps[step].after.last, after.last) << "step " << step;
}

TEST(Plan, rounds_wait_for_the_round_before) {
  const Problem problem = gather_over({0, 1});
  Plan plan(problem);
  const Operand part = input_of(problem, 0), block = output_of(problem, 0, 1);
  const std::uint32_t first = plan.send(1, part), second = plan.recv(1, block);
  plan.next_round();
  const std::uint32_t third = plan.send(1, block);
  plan.next_round();
  plan.next_round();  // an empty round does not cut the chain
  const std::uint32_t fourth = plan.recv(1, block);
  expect_after(plan, first, {0, 0});
  expect_after(plan, second, {0, 0});
  expect_after(plan, third, {0, 2});
  expect_after(plan, fourth, {2, 3});
}

TEST(Plan, lanes_wait_for_nothing) {
  const Problem problem = gather_over({0, 0});
  Plan plan(problem);
  plan.share(input_of(problem, 0));
  plan.next_round();
  plan.next_lane();
  const std::uint32_t first = plan.copy(input_of(problem, 0), output_of(problem, 0, 0));
  plan.next_round();
  const std::uint32_t second = plan.copy(input_of(problem, 1), output_of(problem, 0, 1), 1);
  expect_after(plan, first, {0, 0});
  expect_after(plan, second, {1, 2});
}

TEST(Plan, a_signal_follows_its_own_round_too) {
  const Problem problem = gather_over({0, 0});
  Plan plan(problem);
  plan.share(input_of(problem, 0));
  expect_after(plan, plan.signal(), {0, 1});
  plan.next_round();
  plan.share(output_of(problem, 0, 0));
  expect_after(plan, plan.signal(), {0, 3});
  plan.settle();
  EXPECT_EQ(plan.traits.signals, 2);
}

TEST(Plan, messages_are_numbered_by_peer_and_direction) {
  const Problem problem = gather_over({0, 1, 2});
  Plan plan(problem);
  const Operand part = input_of(problem, 0), block = output_of(problem, 0, 1);
  plan.send(1, part);
  plan.send(2, part);
  plan.recv(1, block);
  plan.send(1, part);
  std::vector<std::uint32_t> ordinals;
  for (const Step& step : plan.steps) {
    ordinals.push_back(step.message);
  }
  EXPECT_THAT(ordinals, ::testing::ElementsAre(0, 0, 0, 1));
}

TEST(Plan, scratch_pieces_do_not_overlap_and_are_aligned) {
  Plan plan(gather_over({0, 1}));
  EXPECT_EQ(plan.scratch(1).offset, 0);
  EXPECT_EQ(plan.scratch(65).offset, 64);
  const Operand last = plan.scratch(3);
  EXPECT_EQ(last.offset, 192);
  EXPECT_EQ(last.count, 3);
  EXPECT_GE(plan.scratch_count, last.offset + last.count);
}

TEST(Plan, keeps_one_ranks_contribution_apart_from_partials) {
  Plan plan(gather_over({0, 1}));
  EXPECT_EQ(plan.room_for({0, 2}, 3).buffer, Buffer::scratch);
  EXPECT_EQ(plan.room_for({1, 2}, 3).buffer, Buffer::contributions);
  const Operand second = plan.room_for({0, 1}, 70);
  EXPECT_EQ(second.offset, 64);
  EXPECT_EQ(plan.scratch_count, 64);
  EXPECT_EQ(plan.contributions_count, 192);
  EXPECT_EQ(plan.own_count(), 256);
}

TEST(Plan, reads_peers_until_the_last_step_that_reads_their_memory) {
  const Algorithm& direct = *find_algorithm(Collective::all_gather, "direct");
  const Plan near = make_plan(gather_over({0, 0}), direct);
  ASSERT_GT(near.traits.reads_until, 0U);
  EXPECT_EQ(near.steps[near.traits.reads_until - 1].from.rank, 1);
  EXPECT_EQ(make_plan(gather_over({0, 1}), direct).traits.reads_until, 0U);
}

// What stands before it, or a copy that a rank has to make first, is nothing that an announcement
// could tell.
TEST(Plan, opens_with_what_is_shared_and_signalled_first) {
  const Problem problem = gather_over({0, 0});
  const Operand part = input_of(problem, 0);
  const auto opening = [&](const std::function<void(Plan&)>& build) {
    Plan plan(problem);
    build(plan);
    plan.settle();
    return plan.traits.opening;
  };
  EXPECT_EQ(opening([](Plan&) {}), 0U);
  EXPECT_EQ(opening([](Plan& plan) { plan.signal(); }), 1U);
  EXPECT_EQ(opening([&](Plan& plan) {
              plan.share(part);
              plan.share(part);
              plan.signal();
              plan.signal();
            }),
            3U);
  EXPECT_EQ(opening([&](Plan& plan) { plan.share(part); }), 0U);
  EXPECT_EQ(opening([&](Plan& plan) {
              plan.share_snapshot(part);
              plan.signal();
            }),
            0U);
  EXPECT_EQ(opening([&](Plan& plan) {
              plan.copy(part, output_of(problem, 0, 0));
              plan.signal();
            }),
            0U);
}

TEST(Plan, counts_bytes_and_the_longest_chain) {
  Problem problem = gather_over({0, 0, 1});
  problem.input = problem.output = DType::f64;
  Plan plan(problem);
  plan.share(input_of(problem, 0));
  plan.signal();
  plan.send(2, input_of(problem, 0));
  plan.recv(2, output_of(problem, 0, 2));
  plan.next_round();
  plan.copy(input_of(problem, 1), output_of(problem, 0, 1), 1);
  plan.next_lane();
  plan.copy(input_of(problem, 0), output_of(problem, 0, 0));
  const Cost expected = {
      .rounds = 2, .bytes_sent = 800, .bytes_received = 800, .bytes_pulled = 800};
  EXPECT_EQ(count(problem, plan), expected);
}

TEST(Plan, a_small_operation_on_one_host_is_one_shot) {
  // Executors carry such plans out in the control line: share and signal, then copies or one
  // reduction.
  for (Collective collective : all_collectives()) {
    Problem problem = gather_over({0, 0, 0, 0});
    problem.collective = collective;
    problem.count = 1;
    if (exchanges(collective)) {
      continue;
    }
    // Where the root only reads, another rank's plan shows it.
    problem.rank = collective == Collective::reduce || collective == Collective::gather ? 1 : 0;
    const Plan plan = make_plan(problem, choose(problem, rules_of({})));
    bool signalled = false;
    for (const Step& step : plan.steps) {
      const bool announces = step.verb == Verb::share || step.verb == Verb::signal;
      EXPECT_EQ(announces, !signalled) << describe(plan);
      signalled |= step.verb == Verb::signal;
      if (!announces && step.verb != Verb::copy) {
        EXPECT_EQ(step.verb, Verb::reduce) << describe(plan);
      }
    }
    EXPECT_EQ(plan.scratch_count, 0) << name(collective);
    EXPECT_EQ(plan.traits.signals, 1) << name(collective);
  }
}

TEST(Plan, describes_every_step_on_a_line) {
  const Algorithm& direct = *find_algorithm(Collective::all_gather, "direct");
  const std::string text = describe(make_plan(gather_over({0, 0, 1}), direct));
  EXPECT_THAT(text, HasSubstr("direct: 6 steps"));
  EXPECT_THAT(text, HasSubstr("copy   1.input[0]+0x100 -> 0.output[1]+0x100 needs 1 after 0..1"));
  EXPECT_THAT(text, HasSubstr("send   peer 2 #0 0.input[0]+0x100"));
}

}  // namespace
}  // namespace sprat::collectives
