// A host is told what its answerer knows, and with it how wrong that may be.
#include "comm/timeline/clock_questions.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sprat::comm::timeline {
namespace {

constexpr std::int64_t us = 1000, ms = 1000 * us, second = 1000 * ms;

TEST(ClockQuestions, a_reading_is_worth_less_the_longer_ago_it_was_taken) {
  const ClockReading reading{.at = 5 * second, .offset = -7, .error = 10 * us};
  EXPECT_EQ(error_at(reading, reading.at), 10 * us);
  EXPECT_EQ(error_at(reading, reading.at + 10 * ms), 11 * us);
  EXPECT_EQ(error_at(reading, reading.at - 10 * ms - 1), 11 * us + 1);
}

// Host 9 of 10 asks host 0 or one that asked: this one is told 900 us late, wrong by 41 us at most.
TEST(ClockQuestions, the_bound_has_what_the_answerer_may_be_wrong_by) {
  std::int64_t now = 0;
  const ClockLine line{.send = [](int, const ClockAnswer&) {},
                       .receive =
                           [&](int) {
                             now += 20 * us;
                             return ClockAnswer{now - 10 * us + 900 * us, 41 * us};
                           },
                       .now = [&] { return now; }};
  const ClockReading reading = ask_for_clock(line, 9, 10);
  EXPECT_EQ(reading.offset, 900 * us);
  EXPECT_EQ(reading.error, 51 * us);
}

TEST(ClockQuestions, rank_0s_clock_is_right_however_long_it_answers) {
  std::vector<ClockAnswer> told;
  std::int64_t now = 0;
  const ClockLine line{.send = [&](int, const ClockAnswer& answer) { told.push_back(answer); },
                       .receive =
                           [&](int) {
                             now += second;
                             return ClockAnswer{};
                           },
                       .now = [&] { return now; }};
  const ClockReading reading = ask_for_clock(line, 0, 9);
  EXPECT_EQ(reading.offset, 0);
  EXPECT_EQ(reading.error, 0);
  ASSERT_EQ(told.size(), 8u * 16);
  EXPECT_EQ(told.back(), (ClockAnswer{8 * 16 * second, 0}));
}

}  // namespace
}  // namespace sprat::comm::timeline
