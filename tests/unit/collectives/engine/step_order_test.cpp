// Steps become ready exactly when the last of those before them is done, in whatever order that is.
#include "collectives/engine/step_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sprat::collectives {
namespace {

Plan drawn_plan(std::mt19937& random) {
  Plan plan{Problem{}};
  plan.steps.resize(std::uniform_int_distribution(0, 12)(random));
  const auto range_before = [&](std::uint32_t index) {
    std::uniform_int_distribution<std::uint32_t> place(0, index);
    const auto [first, last] = std::minmax({place(random), place(random)});
    return IndexRange{first, last};
  };
  for (std::uint32_t index = 0; index < plan.next_index(); ++index) {
    plan.steps[index].after = range_before(index);
    plan.steps[index].behind = range_before(index);
  }
  return plan;
}

std::vector<std::uint32_t> open_and_ready(const StepOrder& order) {
  std::vector<std::uint32_t> ready(order.ready().begin(), order.ready().end());
  std::erase_if(ready, [&](std::uint32_t index) { return order.is_done(index); });
  return ready;
}

std::vector<std::uint32_t> expected_order(const StepOrder& order, const Plan& plan) {
  std::vector<std::uint32_t> ready;
  for (std::uint32_t index = 0; index < plan.next_index(); ++index) {
    const Step& step = plan.steps[index];
    if (!order.is_done(index) && order.are_done(step.after) && order.are_done(step.behind)) {
      ready.push_back(index);
    }
  }
  return ready;
}

TEST(StepOrder, readies_a_step_once_all_that_it_depends_on_is_done) {
  std::mt19937 random(7);
  StepOrder order;
  for (int round = 0; round < 2'000; ++round) {
    const Plan plan = drawn_plan(random);
    // Steps that are done at the beginning depend on each other only.
    const auto done = std::uniform_int_distribution<std::uint32_t>(0, plan.next_index())(random);
    order.begin(plan, done);
    ASSERT_EQ(order.first_open(), done);
    std::uint32_t left = plan.next_index() - done;
    while (left > 0) {
      const std::vector<std::uint32_t> ready = open_and_ready(order);
      ASSERT_EQ(ready, expected_order(order, plan));
      ASSERT_FALSE(ready.empty());
      ASSERT_FALSE(order.over());
      const std::uint32_t chosen = ready[random() % ready.size()];
      order.start(chosen);
      order.finish(chosen);
      --left;
      if (random() % 2 == 0) {
        order.tidy();
      }
    }
    ASSERT_TRUE(order.over());
    ASSERT_TRUE(open_and_ready(order).empty());
  }
}

TEST(StepOrder, knows_what_is_pending_started_and_done) {
  Plan plan{Problem{}};
  plan.steps.resize(2);
  StepOrder order;
  order.begin(plan, 0);
  EXPECT_TRUE(order.is_pending(1));
  order.start(1);
  EXPECT_TRUE(order.is_started(1));
  order.finish(1);
  EXPECT_TRUE(order.is_done(1));
  EXPECT_EQ(order.first_open(), 0U);  // the first is still open
  order.finish(0);
  EXPECT_EQ(order.first_open(), 2U);
}

}  // namespace
}  // namespace sprat::collectives
