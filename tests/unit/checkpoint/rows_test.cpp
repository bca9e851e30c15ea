// Rows that a rank writes: what is copied of them, and what is given back.
#include "checkpoint/rows.hpp"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace sprat::fsdp {
namespace {

TEST(Rows, that_were_received_are_freed_once_they_are_copied) {
  const std::vector<float> held = {1, 2};
  GatheredRows rows{.received = {3, 4, 5}, .files = {}};
  rows.files = {{held, std::span<const float>(rows.received).first(2)},
                {std::span<const float>(rows.received).last(1)}};
  std::vector<float> memory;
  take_snapshot(rows, memory);
  EXPECT_EQ(memory, (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(rows.received.capacity(), 0u);
  ASSERT_EQ(rows.files.size(), 2u);
  ASSERT_EQ(rows.files[1].size(), 1u);
  EXPECT_EQ(rows.files[0][0].data(), memory.data());
  EXPECT_EQ(rows.files[1][0].data(), memory.data() + 4);
}

}  // namespace
}  // namespace sprat::fsdp
