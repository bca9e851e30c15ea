// Ranks as bytes: ranges, each list in one form.
#include "comm/base/rank_ranges.hpp"

#include <gtest/gtest.h>

namespace sprat::comm {
namespace {

TEST(RankRanges, come_back_in_eight_bytes_a_range) {
  struct Case {
    std::vector<int> ranks;
    std::size_t ranges;
  };
  for (const Case& one : std::vector<Case>{
           {{}, 0}, {{0}, 1}, {{7}, 1}, {{0, 1, 2, 3}, 1}, {{0, 2, 3, 9}, 3}, {{15}, 1}}) {
    const Blob bytes = encode_ranks(one.ranks);
    EXPECT_EQ(bytes.size(), 8 * one.ranges);
    EXPECT_EQ(decode_ranks(bytes, 16), one.ranks);
  }
}

TEST(RankRanges, refuse_ranks_that_there_are_not_and_other_forms) {
  const Blob seven = encode_ranks(std::vector<int>{7});
  EXPECT_FALSE(decode_ranks(seven, 7));
  EXPECT_FALSE(decode_ranks(std::span(seven).first(4), 16));
  const auto joined = [](Blob first, const Blob& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  EXPECT_FALSE(decode_ranks(joined(seven, seven), 16));                              // twice
  EXPECT_FALSE(decode_ranks(joined(seven, encode_ranks(std::vector<int>{3})), 16));  // descending
  EXPECT_FALSE(decode_ranks(joined(seven, encode_ranks(std::vector<int>{8})), 16));  // one range
  EXPECT_TRUE(decode_ranks(joined(seven, encode_ranks(std::vector<int>{9})), 16));
  const Blob backwards = {std::byte{3}, {}, {}, {}, std::byte{1}, {}, {}, {}};
  EXPECT_FALSE(decode_ranks(backwards, 16));
}

}  // namespace
}  // namespace sprat::comm
