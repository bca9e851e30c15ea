// Memory that users allocate: found, refused, moved.
#include "comm/memory/memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "sprat/buffer.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

TEST(Memory, is_found_by_any_piece_of_it_and_by_nothing_else) {
  const Memory memory(10'000);
  const auto* data = static_cast<const std::byte*>(memory.data());
  const auto whole = find_memory(data, 10'000);
  ASSERT_TRUE(whole);
  EXPECT_EQ(find_memory(data + 100, 50)->offset, whole->offset + 100);
  EXPECT_FALSE(find_memory(data - 1, 10));
  EXPECT_FALSE(find_memory(data + 9'000, 1 << 20));
  EXPECT_FALSE(find_memory(data + 100, ~std::size_t{0}));  // the sum of both wraps to 99
  int local = 0;
  EXPECT_FALSE(find_memory(&local, sizeof local));
}

TEST(Memory, of_more_than_the_machine_has_is_refused_untouched) {
  for (const std::size_t bytes : {std::size_t{1} << 44, ~std::size_t{0}}) {
    try {
      const Memory memory(bytes);
      FAIL() << bytes << " bytes were given";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_THAT(error.what(), testing::HasSubstr("cannot have " + std::to_string(bytes)));
    }
  }
}

TEST(Memory, moves_and_is_gone_afterwards) {
  Memory memory(4096);
  const void* data = memory.data();
  Memory moved = std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(memory.data(), nullptr);
  moved = Memory();
  EXPECT_FALSE(find_memory(data, 1));
}

}  // namespace
}  // namespace sprat::comm
