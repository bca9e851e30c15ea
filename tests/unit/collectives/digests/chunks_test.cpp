// Which bytes of a call are digested, and in which pieces.
#include "collectives/digests/chunks.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "collectives/digests/replica_sums.hpp"

namespace sprat::collectives::digests {
namespace {

Problem problem_of(Collective collective, int rank, int root = 0) {
  Problem problem;
  problem.collective = collective;
  problem.rank = rank;
  problem.grouping = std::make_shared<Grouping>(std::vector<int>(3, 0));
  problem.count = 10;
  problem.root = root;
  return problem;
}

TEST(DigestChunks, a_digest_is_of_its_chunk_alone) {
  std::vector<std::byte> buffer(3 * chunk_bytes + 5);
  std::vector<std::uint64_t> before;
  for (std::size_t chunk = 0; chunk < chunks_of(buffer.size()); ++chunk) {
    before.push_back(digest_of_chunk(buffer, chunk));
  }
  ASSERT_EQ(before.size(), 4u);
  EXPECT_EQ(before[0], before[2]);
  EXPECT_NE(before[0], before[3]);  // a shorter one is another one
  // Every bit of the first and the last byte of each chunk.
  for (std::size_t chunk = 0; chunk < before.size(); ++chunk) {
    for (const std::size_t at :
         {chunk * chunk_bytes, std::min((chunk + 1) * chunk_bytes, buffer.size()) - 1}) {
      for (int bit = 0; bit < 8; ++bit) {
        buffer[at] ^= static_cast<std::byte>(1 << bit);
        for (std::size_t other = 0; other < before.size(); ++other) {
          EXPECT_EQ(digest_of_chunk(buffer, other) != before[other], other == chunk)
              << at << " " << bit;
        }
        buffer[at] ^= static_cast<std::byte>(1 << bit);
      }
    }
  }
}

TEST(DigestChunks, an_empty_buffer_has_none) {
  EXPECT_EQ(chunks_of(0), 0u);
  EXPECT_EQ(chunks_of(1), 1u);
  EXPECT_EQ(chunks_of(chunk_bytes), 1u);
  EXPECT_EQ(chunks_of(chunk_bytes + 1), 2u);
}

TEST(DigestChunks, extents_are_what_a_rank_gives_and_gets) {
  struct Row {
    Collective collective;
    Extents on_root, elsewhere;
  };
  const std::vector<Row> rows = {
      {Collective::all_reduce, {10, 10}, {10, 10}},
      {Collective::all_gather, {10, 30}, {10, 30}},
      {Collective::reduce_scatter, {30, 10}, {30, 10}},
      {Collective::broadcast, {10, 10}, {0, 10}},
      {Collective::all_to_all, {30, 30}, {30, 30}},
      {Collective::barrier, {0, 0}, {0, 0}},
      {Collective::reduce, {10, 10}, {10, 0}},
      {Collective::gather, {10, 30}, {10, 0}},
      {Collective::scatter, {30, 10}, {0, 10}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(extents_of(problem_of(row.collective, 1, 1)), row.on_root) << name(row.collective);
    EXPECT_EQ(extents_of(problem_of(row.collective, 2, 1)), row.elsewhere) << name(row.collective);
  }
}

TEST(DigestChunks, extents_follow_uneven_blocks) {
  Problem gathers = problem_of(Collective::all_gather, 1);
  gathers.counts = std::make_shared<BlockCounts>(std::vector<std::size_t>{3, 0, 5});
  EXPECT_EQ(extents_of(gathers), (Extents{0, 8}));
  Problem scatters = problem_of(Collective::reduce_scatter, 2);
  scatters.counts = gathers.counts;
  EXPECT_EQ(extents_of(scatters), (Extents{8, 5}));
  Problem exchanges = problem_of(Collective::all_to_allv, 0);
  exchanges.counts = gathers.counts;
  exchanges.out_counts = std::make_shared<BlockCounts>(std::vector<std::size_t>{3, 1, 1});
  EXPECT_EQ(extents_of(exchanges), (Extents{8, 5}));
}

// --- replicas while they run ---

std::vector<ReplicaSum> sums_of(const std::vector<ReplicaSum>& one_of_each_rank) {
  std::vector<ReplicaSum> sums;
  for (const ReplicaSum& one : one_of_each_rank) {
    sums.push_back({});  // a place that is not in use
    sums.push_back(one);
  }
  return sums;
}

TEST(ReplicaVotes, agree_where_all_have_the_same) {
  EXPECT_FALSE(find_fault(sums_of({{1, 5, 7}, {1, 5, 7}, {1, 5, 7}}), 3));
}

TEST(ReplicaVotes, the_fewest_are_wrong) {
  const auto fault = find_fault(sums_of({{1, 5, 7}, {1, 5, 8}, {1, 5, 7}}), 3);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->wrong, std::vector<int>{1});
  EXPECT_EQ(fault->right, (std::vector<int>{0, 2}));
  EXPECT_EQ(fault->calls, 5u);
}

TEST(ReplicaVotes, of_two_nobody_knows_who_is_right) {
  const auto fault = find_fault(sums_of({{1, 5, 7}, {1, 5, 8}}), 2);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->wrong, (std::vector<int>{0, 1}));
  EXPECT_TRUE(fault->right.empty());
}

TEST(ReplicaVotes, only_the_same_calls_of_the_same_communicator_are_compared) {
  EXPECT_FALSE(find_fault(sums_of({{1, 5, 7}, {2, 5, 8}}), 2));
  EXPECT_FALSE(find_fault(sums_of({{1, 5, 7}, {1, 6, 8}}), 2));
}

}  // namespace
}  // namespace sprat::collectives::digests
