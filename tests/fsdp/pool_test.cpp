// The buffer pool keeps to its bound and settles on a few buffers.
#include "fsdp/pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sprat::fsdp {
namespace {

constexpr std::size_t page = 4096;

TEST(BufferPool, gives_back_the_smallest_buffer_that_fits) {
  BufferPool pool;
  Memory large = pool.take(8 * page);
  Memory small = pool.take(2 * page);
  const void* const small_data = small.data();
  const void* const large_data = large.data();
  pool.give(std::move(large));
  pool.give(std::move(small));
  EXPECT_EQ(pool.take(page).data(), small_data);
  EXPECT_EQ(pool.take(3 * page).data(), large_data);
}

TEST(BufferPool, holds_at_most_the_most_lent_times_the_largest) {
  std::mt19937 random(11);
  BufferPool pool;
  std::vector<Memory> lent;
  std::size_t most_lent = 0;
  constexpr std::size_t largest = 9 * page;
  for (int turn = 0; turn < 2000; ++turn) {
    if (lent.size() < 4 && random() % 2 == 0) {
      const std::size_t bytes = page * (1 + random() % 9);
      lent.push_back(pool.take(bytes));
      EXPECT_GE(lent.back().bytes(), bytes);
    } else if (!lent.empty()) {
      std::swap(lent[random() % lent.size()], lent.back());
      pool.give(std::move(lent.back()));
      lent.pop_back();
    }
    most_lent = std::max(most_lent, lent.size());
    EXPECT_LE(pool.held(), most_lent * largest) << "turn " << turn;
  }
  EXPECT_LE(pool.high_water(), most_lent * largest);
  EXPECT_GE(pool.high_water(), pool.held());
}

TEST(BufferPool, a_repeated_sequence_needs_no_new_memory) {
  BufferPool pool;
  const auto once = [&] {
    std::vector<const void*> seen;
    for (const std::size_t pages : {5, 1, 3, 2, 5, 4}) {
      Memory first = pool.take(pages * page);
      Memory second = pool.take(page);
      seen.push_back(first.data());
      seen.push_back(second.data());
      pool.give(std::move(first));
      pool.give(std::move(second));
    }
    return seen;
  };
  once();
  const std::size_t held = pool.held();
  EXPECT_EQ(once(), once());
  EXPECT_EQ(pool.held(), held);
  EXPECT_EQ(pool.high_water(), held);
}

}  // namespace
}  // namespace sprat::fsdp
