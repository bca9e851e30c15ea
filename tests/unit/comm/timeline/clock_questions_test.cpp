// A host is told what its answerer knows, and with it how wrong that may be.
#include "comm/timeline/clock_questions.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sprat::comm::timeline {
namespace {

constexpr std::int64_t usec = 1000, msec = 1000 * usec, sec = 1000 * msec;

TEST(ClockQuestions, a_reading_is_worth_less_the_longer_ago_it_was_taken) {
  const ClockReading reading{.at = 5 * sec, .offset = -7, .error = 10 * usec};
  EXPECT_EQ(error_at(reading, reading.at), 10 * usec);
  EXPECT_EQ(error_at(reading, reading.at + 10 * msec), 11 * usec);
  EXPECT_EQ(error_at(reading, reading.at - 10 * msec - 1), 11 * usec + 1);
}

// Host 9 of 10 asks host 0 or one that asked: this one is told 900 us late, wrong by 41 us at most.
TEST(ClockQuestions, the_bound_has_what_the_answerer_may_be_wrong_by) {
  std::int64_t now = 0;
  const ClockLine line{.send = [](int, const ClockAnswer&) {},
                       .receive =
                           [&](int) {
                             now += 20 * usec;
                             return ClockAnswer{now - 10 * usec + 900 * usec, 41 * usec};
                           },
                       .now = [&] { return now; }};
  const ClockReading reading = ask_for_clock(line, 9, 10);
  EXPECT_EQ(reading.offset, 900 * usec);
  EXPECT_EQ(reading.error, 51 * usec);
}

TEST(ClockQuestions, rank_0s_clock_is_right_however_long_it_answers) {
  std::vector<ClockAnswer> told;
  std::int64_t now = 0;
  const ClockLine line{.send = [&](int, const ClockAnswer& answer) { told.push_back(answer); },
                       .receive =
                           [&](int) {
                             now += sec;
                             return ClockAnswer{};
                           },
                       .now = [&] { return now; }};
  const ClockReading reading = ask_for_clock(line, 0, 9);
  EXPECT_EQ(reading.offset, 0);
  EXPECT_EQ(reading.error, 0);
  ASSERT_EQ(told.size(), 8u * 16);
  EXPECT_EQ(told.back(), (ClockAnswer{8 * 16 * sec, 0}));
}

}  // namespace
}  // namespace sprat::comm::timeline
