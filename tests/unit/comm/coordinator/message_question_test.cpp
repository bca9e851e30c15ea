// Questions about messages: they come back as they went, and a message on its way is not lost.
#include "comm/coordinator/message_question.hpp"

#include <gtest/gtest.h>

namespace sprat::comm {
namespace {

constexpr std::uint32_t most = (std::uint32_t{1} << 30) - 1;

TEST(MessageQuestion, comes_back_as_it_went) {
  for (const bool sends : {false, true}) {
    for (const int rank : {0, 1, 32'767}) {
      for (const std::uint32_t count : {0u, 1u, most}) {
        const auto sequence =
            encode(MessageQuestion{.sends = sends, .asker = rank, .peer = 7, .count = count});
        ASSERT_TRUE(sequence);
        const auto back = decode_question(*sequence);
        ASSERT_TRUE(back);
        EXPECT_EQ(back->sends, sends);
        EXPECT_EQ(back->asker, rank);
        EXPECT_EQ(back->peer, 7);
        EXPECT_EQ(back->count, count);
      }
    }
  }
}

TEST(MessageQuestion, is_no_number_of_a_collective_and_of_no_rank_too_high) {
  EXPECT_FALSE(decode_question(0));
  EXPECT_FALSE(decode_question((std::uint64_t{1} << 63) - 1));
  EXPECT_FALSE(encode(MessageQuestion{.asker = 32'768}));
  EXPECT_FALSE(encode(MessageQuestion{.peer = -1}));
}

TEST(MessageQuestion, of_a_receiver_finds_lost_only_what_was_not_sent) {
  EXPECT_TRUE(is_lost({.count = 0}, 0, 9));
  EXPECT_TRUE(is_lost({.count = 5}, 5, 0));
  EXPECT_FALSE(is_lost({.count = 4}, 5, 9));
  EXPECT_FALSE(is_lost({.count = most}, most + 1, 0));  // counted past the bits that are compared
}

TEST(MessageQuestion, of_a_sender_finds_lost_what_was_not_received) {
  EXPECT_TRUE(is_lost({.sends = true, .count = 1}, 9, 0));
  EXPECT_TRUE(is_lost({.sends = true, .count = 0}, 0, most));
  EXPECT_FALSE(is_lost({.sends = true, .count = 5}, 0, 5));
}

}  // namespace
}  // namespace sprat::comm
