// Memory that is used again, within a bound.
#include "io/loader/memory_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace sprat::io {
namespace {

TEST(MemoryPool, gives_the_same_memory_again) {
  const auto pool = MemoryPool::make(1 << 24);
  std::byte* first = nullptr;
  {
    const PooledMemory memory = pool->take(100000);
    ASSERT_EQ(memory->size(), 100000u);
    std::memset(memory->data(), 1, memory->size());
    first = memory->data();
  }
  EXPECT_EQ(pool->take(100001)->data(), first);
}

TEST(MemoryPool, begins_at_pages) {
  const auto pool = MemoryPool::make(1 << 24);
  for (const std::uint64_t bytes : {1u, 4096u, 5000u, 70000u, 3000000u}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool->take(bytes)->data()) % 4096, 0u) << bytes;
  }
}

TEST(MemoryPool, keeps_no_more_than_it_may) {
  const auto pool = MemoryPool::make(1 << 20);
  std::vector<PooledMemory> taken;
  for (int i = 0; i < 64; ++i) {
    taken.push_back(pool->take(100000 + 10000 * static_cast<std::uint64_t>(i)));
  }
  EXPECT_GT(pool->bytes(), 6u << 20);
  taken.clear();
  EXPECT_LE(pool->bytes(), 1u << 20);
}

TEST(MemoryPool, a_room_is_at_most_an_eighth_larger_than_asked_for) {
  for (std::uint64_t bytes = 40000; bytes < (1u << 26); bytes = bytes * 5 / 4) {
    const auto pool = MemoryPool::make(0);
    const PooledMemory memory = pool->take(bytes);
    EXPECT_LE(pool->bytes(), bytes + bytes / 8 + 4096) << bytes;
    EXPECT_EQ(pool->taken_bytes(), MemoryPool::room_of(bytes)) << bytes;
  }
}

TEST(MemoryPool, memory_outlives_whoever_held_the_pool) {
  auto pool = MemoryPool::make(1 << 20);
  const PooledMemory memory = pool->take(1000);
  pool.reset();
  std::memset(memory->data(), 7, memory->size());
  EXPECT_EQ((*memory)[999], std::byte{7});
}

}  // namespace
}  // namespace sprat::io
