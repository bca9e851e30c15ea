// How many streams, and how messages are cut over them.
#include "comm/transports/sockets/stream_plan.hpp"

#include <gtest/gtest.h>

#include "comm/transports/sockets/stream_frame.hpp"

namespace sprat::comm::sockets {
namespace {

TEST(StreamPlan, has_a_stream_for_each_ten_gigabits) {
  struct Case {
    int speed;
    std::size_t streams;
  };
  for (const Case& one : {Case{0, 1}, Case{-1, 1}, Case{1'000, 1}, Case{10'000, 1}, Case{10'001, 2},
                          Case{25'000, 3}, Case{40'000, 4}, Case{100'000, 8}, Case{400'000, 8}}) {
    EXPECT_EQ(streams_for(one.speed), one.streams) << one.speed;
  }
}

TEST(StreamPlan, cuts_long_messages_where_there_is_something_to_cut_them_over) {
  EXPECT_FALSE(is_cut(most_unasked, 1));
  EXPECT_FALSE(is_cut(least_cut - 1, 2));
  EXPECT_TRUE(is_cut(least_cut, 2));
}

TEST(StreamPlan, covers_a_message_with_pieces_that_frames_can_hold) {
  for (const std::size_t streams : {1u, 2u, 3u, 8u, 64u}) {
    for (const std::size_t bytes : {std::size_t{1}, least_cut, least_cut + 1, std::size_t{100'001},
                                    most_unasked, (std::size_t{64} << 20) + 1}) {
      std::size_t left = bytes, pieces = 0;
      while (left > 0) {
        const std::size_t piece = next_piece(bytes, left, streams);
        ASSERT_GT(piece, 0u);
        ASSERT_LE(piece, left);
        ASSERT_LE(piece, most_piece);
        left -= piece;
        ++pieces;
      }
      // Every stream gets one where that is worth it.
      EXPECT_TRUE(pieces >= streams || bytes < streams * least_cut) << bytes << " over " << streams;
    }
  }
}

}  // namespace
}  // namespace sprat::comm::sockets
