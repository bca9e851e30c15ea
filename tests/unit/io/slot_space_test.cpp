// Slots never overlap, stay below the limit, and leave one whole range once all are given back.
#include "io/slot_space.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sprat::io {
namespace {

TEST(SlotSpace, slots_stay_apart_and_below_the_limit) {
  constexpr std::uint64_t limit = 64;
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    SlotSpace space(limit);
    std::map<std::uint64_t, std::size_t> taken;
    for (int call = 0; call < 100; ++call) {
      if (!taken.empty() && random() % 2 == 0) {
        const auto slot = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
        space.give(slot->first, slot->second);
        taken.erase(slot);
        continue;
      }
      const std::size_t bytes = 1 + random() % 12;
      if (const auto offset = space.take(bytes)) {
        const auto next = taken.lower_bound(*offset);
        EXPECT_TRUE(next == taken.end() || *offset + bytes <= next->first);
        EXPECT_TRUE(next == taken.begin() ||
                    std::prev(next)->first + std::prev(next)->second <= *offset);
        EXPECT_LE(*offset + bytes, limit);
        taken.emplace(*offset, bytes);
      }
    }
    for (const auto& [offset, bytes] : taken) {
      space.give(offset, bytes);
    }
    EXPECT_EQ(space.take(limit), 0u) << "all of it is one range again";
    EXPECT_EQ(space.take(1), std::nullopt);
  }
}

TEST(SlotSpace, the_smallest_gap_that_is_large_enough_is_taken) {
  SlotSpace space(100);
  for (const std::size_t bytes : {10, 5, 4, 5, 1}) {
    space.take(bytes);
  }
  space.give(0, 10);
  space.give(15, 4);
  EXPECT_EQ(space.take(3), 15u);
  EXPECT_EQ(space.take(7), 0u);
  EXPECT_EQ(space.take(0), 0u) << "nothing takes no room";
  EXPECT_EQ(space.take(1), 18u) << "what is left of a gap is one";
}

}  // namespace
}  // namespace sprat::io
