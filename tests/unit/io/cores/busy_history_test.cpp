// How many threads were busy, by made-up times.
#include "io/cores/busy_history.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

TEST(BusyHistory, is_a_mean_over_any_time_that_is_remembered) {
  BusyHistory history;
  const BusyHistory::Time begin{};
  history.change(begin, 1);
  history.change(begin + 10ms, 1);
  history.change(begin + 20ms, -2);
  const BusyHistory::Time now = begin + 40ms;
  EXPECT_DOUBLE_EQ(history.mean(begin, now), 30.0 / 40);
  EXPECT_DOUBLE_EQ(history.mean(begin + 10ms, now), 20.0 / 30);
  EXPECT_DOUBLE_EQ(history.mean(begin + 15ms, now), 10.0 / 25);
  EXPECT_DOUBLE_EQ(history.mean(begin + 25ms, now), 0);
  EXPECT_DOUBLE_EQ(history.mean(now, now), 0);
}

TEST(BusyHistory, reaches_back_for_a_second_however_often_threads_change) {
  BusyHistory history;
  BusyHistory::Time now{};
  std::mt19937 engine(3);
  int busy = 0;
  std::vector<int> each_microsecond;
  for (int step = 0; step < 1'500'000; ++step) {
    if (step % 100 == 0) {
      const int next = static_cast<int>(engine() % 5);
      history.change(now, next - busy);
      busy = next;
    }
    each_microsecond.push_back(busy);
    now += 1us;
  }
  for (const int back : {100, 5'000, 50'000, 1'000'000}) {
    double sum = 0;
    for (int step = 0; step < back; ++step) {
      sum += each_microsecond[each_microsecond.size() - 1 - static_cast<std::size_t>(step)];
    }
    // A mark is never farther from the begin than a millisecond, in which at most 4 are busy.
    EXPECT_NEAR(history.mean(now - std::chrono::microseconds(back), now), sum / back,
                std::min(4.0, 4 * 1000.0 / back));
  }
}

TEST(BusyHistory, knows_nothing_before_the_first_change) {
  BusyHistory history;
  EXPECT_DOUBLE_EQ(history.mean(BusyHistory::Time{}, BusyHistory::Time{} + 1s), 0);
}

}  // namespace
}  // namespace sprat::io
