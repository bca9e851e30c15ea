// Trees, ranges and sizes as people read them.
#include "cli/tree.hpp"

#include <gtest/gtest.h>

namespace sprat::cli {
namespace {

TEST(Tree, branches_hang_below_their_text) {
  EXPECT_EQ(drawn({"a", {{"b", {{"c", {}}}}, {"d", {{"e", {}}}}}}),
            "a\n"
            "├─ b\n"
            "│  └─ c\n"
            "└─ d\n"
            "   └─ e\n");
}

TEST(Tree, ranges_join_neighbours) {
  EXPECT_EQ(ranges({}), "none");
  EXPECT_EQ(ranges({5}), "5");
  EXPECT_EQ(ranges({0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
}

TEST(Tree, sizes_have_a_unit_and_a_digit_where_they_are_not_whole) {
  EXPECT_EQ(readable_bytes(0), "0 B");
  EXPECT_EQ(readable_bytes(32768), "32 KiB");
  EXPECT_EQ(readable_bytes(1536), "1.5 KiB");
  EXPECT_EQ(readable_bytes(std::size_t{1} << 40), "1 TiB");
}

}  // namespace
}  // namespace sprat::cli
