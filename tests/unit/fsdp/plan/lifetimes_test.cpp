// Which buffers meet, over orders of visits where it is known.
#include "fsdp/plan/lifetimes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sprat::fsdp {
namespace {

Visits chain(int units, int ahead, int micro_steps) {
  Visits order{.units = {}};
  for (int unit = 0; unit < units; ++unit) {
    order.units.push_back("u" + std::to_string(unit));
    order.elements.push_back(1);
  }
  order.ahead = ahead;
  order.micro_steps = micro_steps;
  return order;
}

bool together(const std::vector<memory::Lives>& lives, int a, int b) {
  return memory::overlap(lives[static_cast<std::size_t>(a)], lives[static_cast<std::size_t>(b)]);
}
bool used(const std::vector<memory::Lives>& lives, int unit) {
  return !lives[static_cast<std::size_t>(unit)].empty();
}

TEST(Lifetimes, of_a_chain_units_meet_that_are_no_further_apart_than_is_looked_ahead) {
  for (const int ahead : {0, 1, 2}) {
    for (const int micro_steps : {1, 2}) {
      const Lifetimes lives = lifetimes(chain(6, ahead, micro_steps), {.sharded = true});
      for (int a = 0; a < 6; ++a) {
        for (int b = 0; b <= a; ++b) {
          EXPECT_EQ(together(lives.parameters, a, b), a - b <= ahead) << a << ", " << b;
        }
      }
    }
  }
}

TEST(Lifetimes, gradients_meet_those_whose_sums_are_under_way) {
  for (const int in_flight : {1, 2, 3}) {
    const GradientRules rules = {.sharded = true, .every_micro_step = true, .in_flight = in_flight};
    const Lifetimes lives = lifetimes(chain(6, 1, 1), rules);
    for (int a = 0; a < 6; ++a) {
      for (int b = 0; b <= a; ++b) {
        EXPECT_EQ(together(lives.gradients, a, b), a - b <= in_flight) << a << ", " << b;
      }
      EXPECT_FALSE(used(lives.sums, a)) << "of one micro-step nothing is added";
      EXPECT_FALSE(used(lives.narrowed, a));
    }
  }
}

TEST(Lifetimes, later_micro_steps_need_a_place_for_their_sums) {
  const GradientRules rules = {.sharded = true, .every_micro_step = true};
  const Lifetimes lives = lifetimes(chain(4, 1, 2), rules);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b <= a; ++b) {
      EXPECT_EQ(together(lives.sums, a, b), a == b) << "one sum at a time";
    }
  }
}

TEST(Lifetimes, local_gradients_all_meet) {
  const Lifetimes lives = lifetimes(chain(4, 1, 2), {.sharded = true});
  EXPECT_TRUE(together(lives.gradients, 0, 3));
}

TEST(Lifetimes, gradients_that_stay_full_borrow_only_their_narrowed_copy) {
  const Lifetimes lives = lifetimes(chain(4, 1, 2), {.sharded = false, .narrowed = true});
  for (int a = 0; a < 4; ++a) {
    EXPECT_FALSE(used(lives.gradients, a));
    EXPECT_TRUE(used(lives.narrowed, a));
    EXPECT_EQ(together(lives.narrowed, a, 0), a == 0);
  }
}

TEST(Lifetimes, a_unit_that_no_visit_names_is_reduced_at_the_end_and_keeps_its_gradient) {
  Visits order = chain(4, 1, 2);
  order.unvisited = 1;
  for (const bool sharded : {true, false}) {
    const Lifetimes lives = lifetimes(order, {.sharded = sharded, .narrowed = true});
    for (int unit = 0; unit < 4; ++unit) {
      const bool visited = unit < 3;
      EXPECT_EQ(used(lives.parameters, unit), visited) << unit;
      EXPECT_EQ(used(lives.gradients, unit), visited && sharded) << unit;
      EXPECT_EQ(used(lives.narrowed, unit), !(visited && sharded)) << unit;
    }
    EXPECT_FALSE(together(lives.narrowed, 2, 3)) << "one sum at a time, here too";
  }
}

TEST(ReductionOrder, keeps_to_its_count_and_its_bucket) {
  ReductionOrder order({.in_flight = 3, .bucket = 10}, {6, 4, 1, 20});
  EXPECT_EQ(order.begin(0), std::vector<int>{});
  EXPECT_EQ(order.begin(1), std::vector<int>{});
  EXPECT_EQ(order.in_the_way_of(2), std::vector<int>{0}) << "asking changes nothing";
  EXPECT_EQ(order.begin(2), std::vector<int>{0}) << "11 would be too many";
  EXPECT_EQ(order.begin(3), (std::vector<int>{1, 2})) << "alone it may be larger";
  EXPECT_EQ(order.oldest(), 3);
  EXPECT_EQ(order.end_through(0), std::vector<int>{}) << "has ended";
  EXPECT_EQ(order.end_through(3), std::vector<int>{3});
  EXPECT_EQ(order.oldest(), -1);
  order.begin(1);
  order.begin(2);
  EXPECT_EQ(order.end_all(), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace sprat::fsdp
