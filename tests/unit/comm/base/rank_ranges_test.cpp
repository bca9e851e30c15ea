// Ranks as bytes: ranges, each list in one form.
#include "comm/base/rank_ranges.hpp"

#include <gtest/gtest.h>

#include "comm/base/packing.hpp"

namespace sprat::comm {
namespace {

/// Those of [0, size) that are left when every `step` ranks begin with `taken` of them.
std::vector<int> mesh_axis(int size, int step, int taken) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (rank % step < taken) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

TEST(RankRanges, come_back) {
  for (const std::vector<int>& ranks : std::vector<std::vector<int>>{
           {}, {0}, {7}, {0, 1, 2, 3}, {0, 2, 3, 9}, {15}, {0, 2, 4, 6, 8, 10, 12, 14}}) {
    EXPECT_EQ(decode_ranks(encode_ranks(ranks), 16), ranks);
  }
  const std::vector<int> far = {1, 300, 70'000, 3'000'000, 2'147'483'646};
  EXPECT_EQ(decode_ranks(encode_ranks(far), 2'147'483'647), far);
}

TEST(RankRanges, of_meshes_and_of_jobs_that_lost_some_are_few_bytes) {
  constexpr int size = 16'384;
  std::vector<int> left = mesh_axis(size, size, size);
  std::erase_if(left, [](int rank) { return rank == 77 || rank == 5'000; });
  for (const std::vector<int>& ranks :
       {left, mesh_axis(size, 8, 1), mesh_axis(size, 64, 8), mesh_axis(size, 256, 3)}) {
    const Blob bytes = encode_ranks(ranks);
    EXPECT_LE(bytes.size(), 24u) << ranks.size();
    EXPECT_EQ(decode_ranks(bytes, size), ranks);
  }
}

TEST(RankRanges, refuse_ranks_that_there_are_not_and_other_forms) {
  const Blob seven = encode_ranks(std::vector<int>{7});
  EXPECT_TRUE(decode_ranks(seven, 8));
  EXPECT_FALSE(decode_ranks(seven, 7));
  EXPECT_FALSE(decode_ranks(std::span(seven).first(seven.size() - 1), 16));
  const auto ranges = [](std::vector<int> numbers) {
    Blob bytes;
    for (const int number : numbers) {
      bytes.push_back(static_cast<std::byte>(number));
    }
    return pack(bytes);
  };
  EXPECT_EQ(ranges({7, 0}), seven);
  EXPECT_TRUE(decode_ranks(ranges({7, 0, 1, 0}), 16));
  EXPECT_FALSE(decode_ranks(ranges({7, 0, 0, 0}), 16));  // one range
  EXPECT_FALSE(decode_ranks(ranges({7}), 16));           // half a range
  EXPECT_FALSE(decode_ranks(ranges({0x87, 0, 0}), 16));  // 7, longer than it need be
  EXPECT_FALSE(decode_ranks(ranges({}), 16));            // another form of none
  EXPECT_FALSE(decode_ranks(ranges({0, 127}), 16));      // more than there are
}

}  // namespace
}  // namespace sprat::comm
