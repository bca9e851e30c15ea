// The order of messages between many hosts.
#include "collectives/patterns/pairwise_exchange.hpp"

#include <gtest/gtest.h>

namespace sprat::collectives {
namespace {

constexpr std::size_t pairwise_KiB = 1024;

TEST(PairwiseExchange, cut_messages_from_two_chunks_on_and_into_no_more_than_plans_can_bear) {
  for (const Grouping& grouping :
       {Grouping({0, 0, 1, 1}), Grouping({0, 1, 2}), Grouping({0, 0, 1})}) {
    EXPECT_EQ(chunks_of(grouping, 0), 1);
    EXPECT_EQ(chunks_of(grouping, 256 * pairwise_KiB - 1), 1);
    EXPECT_EQ(chunks_of(grouping, 256 * pairwise_KiB), 2);
    EXPECT_EQ(chunks_of(grouping, 1024 * pairwise_KiB + 1), 8);
    EXPECT_EQ(chunks_of(grouping, std::size_t{1} << 40), 256);
  }
}

TEST(PairwiseExchange, cut_less_and_hold_nothing_back_where_two_ranks_have_a_host_each) {
  const Grouping pair({0, 1});
  EXPECT_EQ(chunks_of(pair, 256 * pairwise_KiB - 1), 1);
  EXPECT_EQ(chunks_of(pair, 256 * pairwise_KiB), 2);
  EXPECT_EQ(chunks_of(pair, 2048 * pairwise_KiB), 4);
  EXPECT_EQ(chunks_of(pair, 4096 * pairwise_KiB), 8);
  EXPECT_EQ(chunks_of(pair, std::size_t{1} << 40), 256);
  PairwiseExchange exchange(pair, 2, 16 * 1024 * pairwise_KiB);
  EXPECT_EQ(exchange.chunks(), 32);
  for (int distance = 1; distance <= 2; ++distance) {
    for (int chunk = 0; chunk < 32; ++chunk) {
      exchange.arrives(distance, chunk, {7, 8});
      EXPECT_EQ(exchange.behind(distance, chunk).last, 0u);
    }
  }
}

/// One rank on each.
Grouping hosts_of(int count) {
  std::vector<int> labels;
  for (int host = 0; host < count; ++host) {
    labels.push_back(host);
  }
  return Grouping(labels);
}

/// One rank on each of them, four chunks a message; turn n is received by step n.
PairwiseExchange four_hosts() {
  PairwiseExchange exchange(hosts_of(4), 3, 512 * pairwise_KiB);
  std::uint32_t step = 0;
  for (int distance = 1; distance <= 3; ++distance) {
    for (int chunk = 0; chunk < 4; ++chunk, ++step) {
      exchange.arrives(distance, chunk, {step, step + 1});
    }
  }
  return exchange;
}

TEST(PairwiseExchange, hold_a_chunk_back_behind_what_comes_four_turns_before) {
  const PairwiseExchange exchange = four_hosts();
  for (int chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(exchange.behind(1, chunk).last, 0u) << chunk;
    EXPECT_EQ(exchange.behind(2, chunk).first, static_cast<std::uint32_t>(chunk));
    EXPECT_EQ(exchange.behind(3, chunk).first, static_cast<std::uint32_t>(chunk) + 4);
  }
}

TEST(PairwiseExchange, begin_work_on_a_chunk_behind_what_comes_eight_turns_before) {
  const PairwiseExchange exchange = four_hosts();
  for (int chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(exchange.work_behind(1, chunk).last, 0u) << chunk;
    EXPECT_EQ(exchange.work_behind(2, chunk).last, 0u) << chunk;
    EXPECT_EQ(exchange.work_behind(3, chunk).first, static_cast<std::uint32_t>(chunk));
  }
}

TEST(PairwiseExchange, hold_small_messages_back_only_when_they_add_up) {
  PairwiseExchange exchange(hosts_of(1001), 1000, 1 * pairwise_KiB);
  for (int distance = 1; distance <= 1000; ++distance) {
    exchange.arrives(distance, 0, {7, 8});
  }
  EXPECT_EQ(exchange.behind(128, 0).last, 0u);
  EXPECT_EQ(exchange.behind(129, 0).last, 8u);
}

}  // namespace
}  // namespace sprat::collectives
