// Chunks cover a collective once, all ranks cut alike, and pages of a slab are whose they are.
#include "device/chunks.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "device/slab.hpp"

namespace sprat::device {
namespace {

struct ShapeCase {
  CollectiveShape shape;
  std::size_t chunk_bytes;
};

const ShapeCase shape_cases[] = {
    {{0, {1, 4}, {1, 4}, true}, 4096},         {{1, {1, 4}, {1, 4}, true}, 4096},
    {{1024, {1, 4}, {1, 4}, true}, 4096},      {{1025, {1, 4}, {1, 4}, true}, 4096},
    {{20'011, {1, 4}, {8, 4}, true}, 65'536},  {{20'011, {8, 2}, {1, 4}, false}, 65'536},
    {{5000, {1000, 8}, {1, 8}, true}, 4096},   {{3, {0, 1}, {0, 1}, true}, 1},
    {{70'001, {4, 1}, {4, 1}, false}, 16'384},
};

TEST(LaneChunks, cover_every_element_once_and_stay_near_their_size) {
  for (const ShapeCase& test : shape_cases) {
    const Chunks chunks(test.shape, test.chunk_bytes);
    std::size_t next = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(chunks[i].first, next);
      next += chunks[i].count;
      // More than asked for only to have enough elements, and to begin where vectors do.
      const std::size_t each =
          test.shape.in.blocks * test.shape.in.size + test.shape.out.blocks * test.shape.out.size;
      EXPECT_LE(chunks.memory(chunks[i]).bytes,
                std::max(test.chunk_bytes, 1024 * each) + 64 * each + 2 * stand_in_alignment);
      EXPECT_TRUE(chunks[i].count > 0 || test.shape.count == 0);
    }
    EXPECT_EQ(next, test.shape.count);
  }
}

TEST(LaneChunks, small_collectives_go_whole) {
  EXPECT_EQ(Chunks({1000, {1, 8}, {1, 8}, true}, 1).size(), 1u);
  EXPECT_EQ(Chunks({1 << 20, {1, 4}, {1, 4}, true}, 4 << 20).size(), 1u);
  EXPECT_EQ(Chunks({1 << 21, {1, 4}, {1, 4}, true}, 4 << 20).size(), 2u);
}

TEST(LaneChunks, operands_apart_do_not_overlap) {
  const Chunks chunks({1000, {2, 2}, {1, 4}, false}, 1 << 20);
  const ChunkMemory memory = chunks.memory(chunks[0]);
  EXPECT_EQ(memory.in, 0u);
  EXPECT_EQ(memory.out, aligned(4000));
  EXPECT_EQ(memory.bytes, 2 * aligned(4000));
}

TEST(LaneChunks, pages_that_are_taken_stay_apart_and_come_back) {
  constexpr std::size_t pages = 64;
  PageMap map(pages);
  std::mt19937 random(7);
  std::set<std::size_t> taken;
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  for (int step = 0; step < 5000; ++step) {
    const std::size_t wanted = 1 + random() % 9;
    if (const auto first = map.take(wanted)) {
      for (std::size_t page = *first; page < *first + wanted; ++page) {
        EXPECT_LT(page, pages);
        EXPECT_TRUE(taken.insert(page).second) << page;
      }
      pieces.emplace_back(*first, wanted);
    }
    if (pieces.size() > random() % 12) {
      const std::size_t at = random() % pieces.size();
      const auto [first, count] = pieces[at];
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at));
      for (std::size_t page = first; page < first + count; ++page) {
        taken.erase(page);
      }
      map.give(first, count);
    }
    ASSERT_EQ(map.free(), pages - taken.size());
  }
  for (const auto& [first, count] : pieces) {
    map.give(first, count);
  }
  EXPECT_EQ(map.take(pages), 0u) << "gaps beside each other are one";
}

}  // namespace
}  // namespace sprat::device
