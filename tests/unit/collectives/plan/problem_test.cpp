// Groupings, the canonical tree, slices and sizes.
#include "collectives/plan/problem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::collectives {
namespace {

using testing::ElementsAre;

Problem problem_between(Collective collective, int ranks, std::size_t count, DType input,
                        DType output) {
  return {.collective = collective,
          .grouping = std::make_shared<const Grouping>(std::vector<int>(ranks, 0)),
          .count = count,
          .input = input,
          .output = output};
}

TEST(Problem, tree_splits_at_the_largest_power_of_two_below_its_size) {
  const std::vector<std::pair<RankRange, int>> table = {
      {{0, 2}, 1}, {{0, 3}, 2}, {{0, 4}, 2},  {{0, 5}, 4},   {{0, 8}, 4},
      {{0, 9}, 8}, {{4, 7}, 6}, {{8, 10}, 9}, {{0, 17}, 16}, {{16, 32}, 24},
  };
  for (const auto& [range, split] : table) {
    EXPECT_EQ(split_point(range), split) << range.first << ".." << range.last;
  }
}

TEST(Problem, nodes_split_behind_a_first_term_that_reaches_over_their_middle) {
  EXPECT_EQ(split_point({0, 8}, {0, 1}), 4);
  EXPECT_EQ(split_point({0, 8}, {0, 4}), 4);
  EXPECT_EQ(split_point({0, 8}, {0, 7}), 7);
}

TEST(Problem, slices_tile_the_count_at_multiples_of_64) {
  for (std::size_t count : {0ul, 1ul, 63ul, 64ul, 65ul, 1000ul, 64ul * 17 + 3, (1ul << 40) + 7}) {
    for (int parts = 1; parts <= 17; ++parts) {
      std::size_t end = 0, least = count, most = 0;
      for (int index = 0; index < parts; ++index) {
        const Slice piece = slice(count, parts, index);
        if (piece.count > 0) {
          EXPECT_EQ(piece.offset % 64, 0) << count << " in " << parts;
        }
        EXPECT_EQ(piece.offset, end) << count << " in " << parts << ", piece " << index;
        end = piece.offset + piece.count;
        least = std::min(least, piece.count);
        most = std::max(most, piece.count);
      }
      EXPECT_EQ(end, count) << parts << " parts";
      EXPECT_LE(most - least, 127) << count << " in " << parts;
    }
  }
}

TEST(Problem, hosts_are_numbered_by_their_lowest_rank) {
  const Grouping grouping({7, 3, 7, 9, 3});
  EXPECT_EQ(grouping.ranks(), 5);
  EXPECT_EQ(grouping.hosts(), 3);
  EXPECT_THAT(grouping.members(0), ElementsAre(0, 2));
  EXPECT_THAT(grouping.members(1), ElementsAre(1, 4));
  EXPECT_THAT(grouping.members(2), ElementsAre(3));
  EXPECT_EQ(grouping.host_of(4), 1);
  EXPECT_EQ(grouping.local_index(4), 1);
  EXPECT_TRUE(grouping.together(0, 2));
  EXPECT_FALSE(grouping.together(0, 1));
}

TEST(Problem, subtrees_are_maximal_and_cover_each_hosts_ranks) {
  EXPECT_THAT(Grouping({0, 0, 0, 0, 1, 1, 1, 1}).subtrees(1), ElementsAre(RankRange{4, 8}));
  const Grouping uneven({0, 1, 1, 2, 2, 2});
  EXPECT_THAT(uneven.subtrees(0), ElementsAre(RankRange{0, 1}));
  EXPECT_THAT(uneven.subtrees(1), ElementsAre(RankRange{1, 2}, RankRange{2, 3}));
  EXPECT_THAT(uneven.subtrees(2), ElementsAre(RankRange{3, 4}, RankRange{4, 6}));
  EXPECT_THAT(Grouping(std::vector<int>(13, 0)).subtrees(0), ElementsAre(RankRange{0, 13}));
}

TEST(Problem, only_floats_narrower_than_f32_accumulate_in_another_type) {
  for (DType dtype : all_dtypes()) {
    const bool is_narrow = takes(ReduceOp::premultiplied_sum, dtype) && size_of(dtype) < 4;
    Problem problem = problem_between(Collective::all_reduce, 2, 1, dtype, dtype);
    EXPECT_EQ(problem.accumulator(), is_narrow ? DType::f32 : dtype) << name(dtype);
    problem.op = Reduction::user({"op", [](const void*, void*, std::size_t, DType) {}});
    EXPECT_EQ(problem.accumulator(), dtype) << "user operations know no other type";
  }
}

TEST(Problem, payload_is_the_larger_of_input_and_output) {
  const auto bytes = [](Collective collective, DType input, DType output) {
    return problem_between(collective, 4, 10, input, output).payload_bytes();
  };
  EXPECT_EQ(bytes(Collective::all_reduce, DType::f16, DType::f16), 20);
  EXPECT_EQ(bytes(Collective::all_reduce, DType::f16, DType::f32), 40);
  EXPECT_EQ(bytes(Collective::all_gather, DType::f32, DType::f32), 160);
  EXPECT_EQ(bytes(Collective::reduce_scatter, DType::f16, DType::f32), 80);
  EXPECT_EQ(bytes(Collective::reduce, DType::f16, DType::f32), 20) << "what every rank knows";
  EXPECT_EQ(bytes(Collective::broadcast, DType::f64, DType::f64), 80);
  EXPECT_EQ(bytes(Collective::all_to_all, DType::i8, DType::i8), 40);
  EXPECT_EQ(bytes(Collective::barrier, DType::i8, DType::i8), 0);
}

}  // namespace
}  // namespace sprat::collectives
