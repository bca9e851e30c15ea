// The order of messages between many hosts.
#include "collectives/patterns/pairwise_exchange.hpp"

#include <gtest/gtest.h>

namespace sprat::collectives {
namespace {

constexpr std::size_t pairwise_KiB = 1024;

TEST(PairwiseExchange, cut_messages_from_two_chunks_on_and_into_no_more_than_plans_can_bear) {
  EXPECT_EQ(chunks_of(0), 1);
  EXPECT_EQ(chunks_of(256 * pairwise_KiB - 1), 1);
  EXPECT_EQ(chunks_of(256 * pairwise_KiB), 2);
  EXPECT_EQ(chunks_of(1024 * pairwise_KiB + 1), 8);
  EXPECT_EQ(chunks_of(std::size_t{1} << 40), 256);
}

TEST(PairwiseExchange, hold_a_chunk_back_behind_what_comes_four_turns_before) {
  PairwiseExchange exchange(3, 512 * pairwise_KiB);  // four chunks
  std::uint32_t step = 0;
  for (int distance = 1; distance <= 3; ++distance) {
    for (int chunk = 0; chunk < 4; ++chunk, ++step) {
      exchange.arrives(distance, chunk, {step, step + 1});
    }
  }
  for (int chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(exchange.behind(1, chunk).last, 0u) << chunk;
    EXPECT_EQ(exchange.behind(2, chunk).first, static_cast<std::uint32_t>(chunk));
    EXPECT_EQ(exchange.behind(3, chunk).first, static_cast<std::uint32_t>(chunk) + 4);
  }
}

TEST(PairwiseExchange, hold_small_messages_back_only_when_they_add_up) {
  PairwiseExchange exchange(1000, 1 * pairwise_KiB);
  for (int distance = 1; distance <= 1000; ++distance) {
    exchange.arrives(distance, 0, {7, 8});
  }
  EXPECT_EQ(exchange.behind(128, 0).last, 0u);
  EXPECT_EQ(exchange.behind(129, 0).last, 8u);
}

}  // namespace
}  // namespace sprat::collectives
