// How encoded numbers are dealt among ranks.
#include "fsdp/plan/encoded_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/plan/placement.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {
namespace {

TEST(EncodedParts, are_whole_blocks_in_rank_order_that_differ_by_at_most_one) {
  for (const std::size_t blocks : {0, 1, 3, 4, 8, 13, 100}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const EncodedParts parts(blocks * wire_block_elements, ranks);
      std::size_t end = 0, least = ~std::size_t{0}, bytes = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(parts.offset(rank), end);
        EXPECT_EQ(parts.count(rank) % wire_block_elements, 0u);
        end += parts.count(rank);
        bytes += parts.bytes(rank);
        least = std::min(least, parts.count(rank));
      }
      EXPECT_EQ(end, blocks * wire_block_elements);
      EXPECT_EQ(bytes, parts.bytes());
      EXPECT_LE(parts.most() - least, wire_block_elements);
    }
  }
}

TEST(EncodedParts, an_exchange_holds_what_is_sent_and_what_is_received) {
  // Five blocks of 260 bytes on two ranks: all five, and three of either rank.
  EXPECT_EQ(EncodedParts(5 * 256, 2).exchange_bytes(), (5 + 2 * 3) * 260u);
}

TEST(EncodedHop, is_the_last_one_and_keeps_residuals_of_what_it_sends) {
  constexpr std::size_t padded = 8 * 1024;
  struct Case {
    const char* strategy;
    int degree;
    std::size_t sent, returned;
  };
  for (const Case& one : {Case{"ddp", 0, padded, padded / 8}, Case{"zero1", 0, padded, 0},
                          Case{"zero3", 0, padded, 0}, Case{"hsdp", 2, padded / 2, padded / 2 / 4},
                          Case{"hfsdp", 2, padded / 2, 0}, Case{"hsdp", 8, padded, 0}}) {
    const Sharding sharding = choose_sharding(8, one.strategy, one.degree);
    const EncodedHop hop = encoded_hop(sharding, DType::i8, padded);
    EXPECT_EQ(hop.sent, one.sent) << one.strategy;
    EXPECT_EQ(hop.returned, one.returned) << one.strategy;
    EXPECT_EQ(hop.staging_bytes, 2 * encoded_bytes(hop.sent)) << one.strategy;
    EXPECT_EQ(encoded_hop(sharding, DType::bf16, padded).staging_bytes, 0u) << one.strategy;
  }
  EXPECT_EQ(encoded_hop(choose_sharding(1, "ddp", 0), DType::i8, padded).staging_bytes, 0u);
}

}  // namespace
}  // namespace sprat::fsdp
