// Slot plans: no two units alive together share a slot, and no slot is there for nothing.
#include "memory/arena.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace sprat::fsdp {
namespace {

constexpr std::size_t page = 4096;

TEST(SlotPlan, units_alive_together_have_slots_of_their_own) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const std::size_t units = 1 + random() % 8;
    Overlaps overlaps(units);
    std::size_t most = 0;
    std::vector<std::size_t> bytes(units);
    for (std::size_t& one : bytes) {
      one = random() % 5 * page;
    }
    for (int moment = 0; moment < 6; ++moment) {
      std::vector<bool> alive(units);
      std::size_t sum = 0;
      for (std::size_t unit = 0; unit < units; ++unit) {
        alive[unit] = random() % 3 == 0;
        sum += alive[unit] ? bytes[unit] : 0;
      }
      overlaps.meet(alive);
      most = std::max(most, sum);
    }
    const SlotPlan plan = plan_slots(overlaps, bytes);
    for (std::size_t a = 0; a < units; ++a) {
      const bool placed = plan.slot[a] >= 0;
      EXPECT_EQ(placed, overlaps.used(a) && bytes[a] > 0);
      EXPECT_TRUE(!placed || plan.bytes[static_cast<std::size_t>(plan.slot[a])] >= bytes[a]);
      for (std::size_t b = 0; b < a && placed; ++b) {
        EXPECT_TRUE(plan.slot[a] != plan.slot[b] || !overlaps.together(a, b)) << a << ", " << b;
      }
    }
    EXPECT_GE(plan.total(), most) << "what is alive at a moment fits";
    EXPECT_LE(plan.total(), std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
  }
}

TEST(SlotPlan, a_small_unit_takes_the_slot_of_a_large_one_that_is_gone) {
  Overlaps overlaps(3);
  overlaps.meet({true, true, false});
  overlaps.meet({false, true, true});
  const std::vector<std::size_t> bytes = {8 * page, page, 2 * page};
  const SlotPlan plan = plan_slots(overlaps, bytes);
  EXPECT_EQ(plan.slot, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(plan.bytes, (std::vector<std::size_t>{8 * page, page}));
}

TEST(Arena, slots_are_made_once_and_lent_again) {
  Arena arena({.slot = {0, 1, 0}, .bytes = {2 * page, page}});
  EXPECT_EQ(arena.held(), 0u);
  const void* first = nullptr;
  {
    const Lease lease = arena.take(0);
    first = lease.data();
    EXPECT_EQ(arena.held(), 2 * page);
  }
  EXPECT_EQ(arena.take(2).data(), first);
  EXPECT_EQ(arena.held(), 2 * page) << "kept for the next";
}

TEST(Arena, a_caller_that_holds_more_than_planned_gets_more) {
  Arena arena({.slot = {0, 0}, .bytes = {page}});
  {
    const Lease one = arena.take(0);
    const Lease two = arena.take(1);
    EXPECT_NE(one.data(), two.data());
    EXPECT_EQ(arena.held(), 2 * page);
  }
  EXPECT_EQ(arena.held(), page);
  EXPECT_EQ(arena.high_water(), 2 * page);
}

TEST(Arena, poison_fills_what_is_given_back) {
  Arena arena({.slot = {0}, .bytes = {page}}, true);
  const float* values = nullptr;
  {
    const Lease lease = arena.take(0);
    values = static_cast<const float*>(lease.data());
    EXPECT_EQ(values[5], 0.0f);
  }
  EXPECT_NE(values[5], values[5]) << "a NaN";
}

}  // namespace
}  // namespace sprat::fsdp
