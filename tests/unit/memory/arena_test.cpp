// Slot plans: no two buffers alive together share a slot, and no slot is there for nothing.
#include "memory/arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/memory/peak_bytes.hpp"

namespace sprat::memory {
namespace {

constexpr std::size_t page = 4096;

TEST(SlotPlan, buffers_alive_together_have_slots_of_their_own) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const std::size_t count = 1 + random() % 8;
    LifeRecord record(count);
    std::vector<Buffer> buffers(count);
    std::vector<std::vector<bool>> moments;
    for (int moment = 0; moment < 6; ++moment) {
      std::vector<bool>& alive = moments.emplace_back(count);
      std::generate(alive.begin(), alive.end(), [&] { return random() % 3 == 0; });
      record.meet(alive);
    }
    for (std::size_t a = 0; a < count; ++a) {
      buffers[a] = {.name = "", .bytes = random() % 5 * page, .lives = record.lives()[a]};
    }
    const SlotPlan plan = plan_slots(buffers);
    for (std::size_t a = 0; a < count; ++a) {
      const auto alive = [&](const std::vector<bool>& moment) { return bool(moment[a]); };
      const bool placed = plan.slot[a] >= 0;
      EXPECT_EQ(placed, std::ranges::any_of(moments, alive) && buffers[a].bytes > 0);
      EXPECT_TRUE(!placed ||
                  plan.bytes[static_cast<std::size_t>(plan.slot[a])] >= buffers[a].bytes);
      for (std::size_t b = 0; b < a && placed; ++b) {
        const bool meets = std::ranges::any_of(
            moments, [&](const std::vector<bool>& moment) { return moment[a] && moment[b]; });
        EXPECT_EQ(overlap(buffers[a].lives, buffers[b].lives), meets) << a << ", " << b;
        EXPECT_TRUE(plan.slot[a] != plan.slot[b] || !meets) << a << ", " << b;
      }
    }
    std::size_t most = 0, all = 0;
    for (const std::vector<bool>& moment : moments) {
      std::size_t sum = 0;
      for (std::size_t a = 0; a < count; ++a) {
        sum += moment[a] ? buffers[a].bytes : 0;
      }
      most = std::max(most, sum);
    }
    for (const Buffer& buffer : buffers) {
      all += buffer.bytes;
    }
    EXPECT_EQ(peak_bytes(buffers), most);
    EXPECT_GE(plan.total(), most) << "what is alive at a moment fits";
    EXPECT_LE(plan.total(), all);
  }
}

TEST(SlotPlan, a_small_buffer_takes_the_slot_of_a_large_one_that_is_gone) {
  const std::vector<Buffer> buffers = {{.name = "a", .bytes = 8 * page, .lives = {{0, 1}}},
                                       {.name = "b", .bytes = page, .lives = {{0, 2}}},
                                       {.name = "c", .bytes = 2 * page, .lives = {{1, 2}}}};
  const SlotPlan plan = plan_slots(buffers);
  EXPECT_EQ(plan.slot, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(plan.bytes, (std::vector<std::size_t>{8 * page, page}));
  EXPECT_EQ(peak_bytes(buffers), 9 * page);
}

TEST(SlotPlan, thousands_of_tapes_of_a_pipeline_share_as_many_slots_as_are_alive) {
  // 1F1B: micro-batch i lives from action 2i to 2i + 8, so four are alive at any moment.
  std::vector<Buffer> tapes;
  for (std::size_t i = 0; i < 4000; ++i) {
    tapes.push_back({.name = "tape", .bytes = page, .lives = {{2 * i, 2 * i + 8}}});
  }
  EXPECT_EQ(plan_slots(tapes).total(), 4 * page);
  EXPECT_EQ(peak_bytes(tapes), 4 * page);
}

TEST(SlotPlan, buffers_may_join_while_a_program_is_rehearsed) {
  LifeRecord record(1);
  record.meet({true});
  record.meet({true, false, true});
  EXPECT_EQ(record.lives(), (std::vector<Lives>{{{0, 2}}, {}, {{1, 2}}}));
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

TEST(Arena, a_buffer_that_no_plan_knows_gets_memory_of_its_own) {
  Arena arena({.slot = {0, -1}, .bytes = {page}});
  const void* const planned = arena.take_or_make(0, 3 * page).data();
  EXPECT_EQ(arena.take(0).data(), planned);
  EXPECT_EQ(arena.held(), page);
  for (const int buffer : {1, 2}) {
    const Lease lease = arena.take_or_make(buffer, 2 * page);
    EXPECT_EQ(arena.held(), 3 * page) << buffer;
  }
  EXPECT_EQ(arena.held(), page) << "gone when given back";
  EXPECT_EQ(arena.high_water(), 3 * page);
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
}  // namespace sprat::memory
