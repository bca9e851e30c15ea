// Which rows a rank of a tensor parallel group has: parts that halving makes, chunks that hold
// every row once.
#include "mp/tensor/row_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sprat::tensor_test::plan {
namespace {

using tensor::Part;
using tensor::plan_rows;
using tensor::RowChunk;
using tensor::RowPlan;
using tensor::RowRun;
using tensor::slots_count;

TEST(TensorRows, parts_follow_each_other_and_are_nested_as_halves) {
  for (int extent = 0; extent < 40; ++extent) {
    int begin = 0;
    for (int index = 0; index < 4; ++index) {
      const Part part = tensor::part_of(extent, 4, index);
      EXPECT_EQ(part.first, begin);
      begin = part.end();
      const Part half = tensor::part_of(extent, 2, index / 2);
      Part of_half = tensor::part_of(half.count, 2, index % 2);
      of_half.first += half.first;
      EXPECT_EQ(part, of_half) << "part " << index << " of " << extent;
    }
    EXPECT_EQ(begin, extent);
  }
}

TEST(TensorRows, of_a_vocabulary_that_does_not_divide_have_unequal_parts) {
  EXPECT_EQ(tensor::part_of(50257, 2, 0), (Part{0, 25128}));
  EXPECT_EQ(tensor::part_of(50257, 2, 1), (Part{25128, 25129}));
  EXPECT_EQ(tensor::part_of(2'000'000'000, 4, 3), (Part{1'500'000'000, 500'000'000}));
}

TEST(TensorRows, refuse_a_part_that_is_not_there) {
  EXPECT_THROW(tensor::part_of(8, 4, 4), Error);
  EXPECT_THROW(tensor::part_of(8, 0, 0), Error);
}

struct PlanCase {
  int degree = 1;
  bool sequence_parallel = false;
  int rows = 0;
  std::size_t chunk_bytes = 0;
};
std::vector<PlanCase> plan_cases() {
  std::vector<PlanCase> cases;
  for (const int degree : {1, 2, 3, 4, 8}) {
    for (const bool dealt : {false, true}) {
      for (const int rows : {0, 1, 7, 64, 303, 2048}) {
        for (const std::size_t chunk_bytes : {1, 20'000}) {
          cases.push_back({degree, dealt, rows, chunk_bytes});
        }
      }
    }
  }
  return cases;
}
RowPlan plan_of(const PlanCase& one) {
  constexpr int width = 24;
  return plan_rows({.degree = one.degree,
                    .sequence_parallel = one.sequence_parallel,
                    .chunk_bytes = one.chunk_bytes,
                    .chunk_rows = 32},
                   one.rows, width);
}

TEST(TensorRows, are_in_one_chunk_each_and_in_the_piece_of_their_rank) {
  for (const PlanCase& one : plan_cases()) {
    const RowPlan plan = plan_of(one);
    std::vector<int> seen(std::size_t(one.rows), 0);
    for (const RowChunk& chunk : plan.chunks) {
      EXPECT_LE(chunk.rows, plan.most_rows);
      for (std::size_t rank = 0; rank < chunk.pieces.size(); ++rank) {
        const Part& piece = chunk.pieces[rank];
        EXPECT_GE(piece.first, plan.own[rank].first);
        EXPECT_LE(piece.end(), plan.own[rank].end());
        for (int row = piece.first; row < piece.end(); ++row) {
          ++seen[std::size_t(row)];
        }
      }
    }
    EXPECT_THAT(seen, testing::Each(1)) << one.degree << " ranks, " << one.rows << " rows";
  }
}

TEST(TensorRows, run_on_through_a_chunk_as_its_pieces_lie) {
  for (const PlanCase& one : plan_cases()) {
    for (const RowChunk& chunk : plan_of(one).chunks) {
      int at = 0;
      for (const RowRun& run : runs_of(chunk)) {
        EXPECT_EQ(run.at, at);
        at += run.rows.count;
      }
      EXPECT_EQ(at, chunk.rows);
    }
  }
}

TEST(TensorRows, of_others_leave_out_the_piece_of_a_rank) {
  for (const PlanCase& one : plan_cases()) {
    for (const RowChunk& chunk : plan_of(one).chunks) {
      for (int rank = 0; rank < static_cast<int>(chunk.pieces.size()); ++rank) {
        const int begin = place_in(chunk, rank);
        const int count = chunk.pieces[std::size_t(rank)].count;
        int others = 0;
        for (const RowRun& run : runs_of_others(chunk, rank)) {
          others += run.rows.count;
          EXPECT_TRUE(run.at + run.rows.count <= begin || run.at >= begin + count);
        }
        EXPECT_EQ(others, chunk.rows - count);
      }
    }
  }
}

TEST(TensorRows, of_a_single_chunk_are_one_run) {
  const RowPlan plan = plan_rows({.degree = 4, .sequence_parallel = true}, 303, 24);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_THAT(runs_of(plan.chunks[0]), testing::ElementsAre(RowRun{{0, 303}, 0}));
  EXPECT_THAT(runs_of_others(plan.chunks[0], 1),
              testing::ElementsAre(RowRun{{0, 75}, 0}, RowRun{{151, 152}, 151}));
}

TEST(TensorRows, travel_in_more_chunks_the_longer_they_are_up_to_eight) {
  const auto chunks = [](int rows, int degree) {
    const tensor::Parallelism how{
        .degree = degree, .sequence_parallel = true, .chunk_bytes = 1 << 20, .chunk_rows = 32};
    return plan_rows(how, rows, 1024).chunks.size();
  };
  EXPECT_EQ(chunks(255, 2), 1u);
  EXPECT_EQ(chunks(512, 2), 2u);
  EXPECT_EQ(chunks(1 << 16, 2), 8u);
  EXPECT_EQ(chunks(1 << 16, 1), 1u);
}

TEST(TensorRows, are_cut_to_no_products_of_fewer_than_the_chunk_rows) {
  const auto chunks = [](int degree, bool dealt, int chunk_rows) {
    const tensor::Parallelism how{
        .degree = degree, .sequence_parallel = dealt, .chunk_bytes = 1, .chunk_rows = chunk_rows};
    return plan_rows(how, 1024, 1024).chunks.size();
  };
  EXPECT_EQ(chunks(2, false, 256), 4u);
  EXPECT_EQ(chunks(2, true, 256), 2u);  // a product for each rank's rows
  EXPECT_EQ(chunks(4, true, 256), 1u);
  EXPECT_EQ(chunks(4, true, 257), 1u);
  EXPECT_EQ(chunks(16, true, 32), 2u);
  EXPECT_EQ(chunks(16, true, 33), 1u);
}

TEST(TensorRows, need_room_for_two_chunks) {
  EXPECT_EQ(
      slots_count({.degree = 2, .sequence_parallel = true, .chunk_bytes = 1, .chunk_rows = 32},
                  1024, 8),
      std::size_t{2} * 1024 / 8 * 8);
  EXPECT_EQ(slots_count({.degree = 1}, 1024, 8), 0u);
  EXPECT_EQ(slots_count({.degree = 2}, 8, 8), 64u);
}

TEST(TensorRows, need_room_for_one_chunk_where_all_are_one) {
  EXPECT_EQ(tensor::most_slots_count({.degree = 2}, 8, 8), 64u);
}

TEST(TensorRows, are_one_chunk_where_none_can_have_so_many) {
  EXPECT_EQ(tensor::plan_rows({.degree = 4, .chunk_rows = 1 << 30}, 4096, 8).chunks.size(), 1u);
}

TEST(TensorRows, need_no_more_room_than_that_of_the_most_if_there_are_fewer) {
  for (const bool dealt : {false, true}) {
    for (const int degree : {1, 2, 3, 4}) {
      const tensor::Parallelism how{
          .degree = degree, .sequence_parallel = dealt, .chunk_bytes = 4000, .chunk_rows = 32};
      std::size_t most = 0;
      for (int rows = 0; rows < 1200; ++rows) {
        most = std::max(most, slots_count(how, rows, 8));
        ASSERT_GE(most_slots_count(how, rows, 8), most) << degree << " ranks, " << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace sprat::tensor_test::plan
