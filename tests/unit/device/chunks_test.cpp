// Chunks cover a collective once, all ranks cut alike, and memory is a flight's until it ends.
#include "device/chunks.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

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

TEST(LaneChunks, a_ring_gives_no_memory_before_its_flight_has_ended) {
  constexpr std::size_t bytes = 64;
  Ring ring(bytes);
  std::mt19937 random(7);
  struct Piece {
    std::size_t begin, end;
  };
  std::vector<Piece> pieces;
  constexpr std::uint32_t first = 0xffff'ff00u;  // numbers wrap
  std::uint32_t ended = first;
  int waited = 0;
  for (std::uint32_t flight = 0; flight < 5000; ++flight) {
    const std::size_t wanted = 1 + random() % 40;
    // Some flights end by themselves, others when their memory is asked for.
    ended += static_cast<std::uint32_t>(random() % 2) * (first + flight - ended > 0 ? 1 : 0);
    const Ring::Place place = ring.take(wanted, first + flight, ended);
    ASSERT_LE(place.offset + wanted, bytes);
    if (place.free_behind) {
      ++waited;
      ASSERT_GT(static_cast<std::int32_t>(*place.free_behind - ended), 0) << "it had ended";
      ended = *place.free_behind;
    }
    for (std::uint32_t other = ended - first; other < flight; ++other) {
      EXPECT_TRUE(pieces[other].end <= place.offset || place.offset + wanted <= pieces[other].begin)
          << "flight " << flight << " has memory of flight " << other;
    }
    pieces.push_back({place.offset, place.offset + wanted});
  }
  EXPECT_GT(waited, 1000);
}

}  // namespace
}  // namespace sprat::device
