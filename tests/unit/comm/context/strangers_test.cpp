// How long yields take, and what a rank makes of it.
#include "comm/context/strangers.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

class StrangersTest : public testing::Test {
 protected:
  bool avoided() {
    return strangers.avoided([this] { return now; });
  }
  /// A yield that takes so long, timed or not, on a core whose counter makes every fifth of a
  /// millisecond seem long.
  void yield(Clock::duration took) {
    now += took;
    if (strangers.suspected()) {
      strangers.yielded(took, now);
    } else if (took >= 200us) {
      strangers.suspect();
    }
  }

  Strangers strangers;
  Clock::time_point now{1h};
  Clock::duration last{};
};

// 64 ranks on a core that take turns: every third yield seems long.
TEST_F(StrangersTest, are_not_ranks_that_take_turns) {
  for (int i = 0; i < 1'000'000; ++i) {
    yield(i % 3 == 0 ? 230us : 180us);
    ASSERT_FALSE(avoided()) << i;
  }
}

TEST_F(StrangersTest, are_met_when_three_waits_last_a_time_slice) {
  yield(5us);
  yield(6ms);  // not timed
  for (std::uint64_t wait = 0; wait < Strangers::long_waits; ++wait) {
    EXPECT_FALSE(avoided());
    strangers.begin_wait();
    yield(5us);
    yield(3ms);
  }
  EXPECT_TRUE(avoided());
  now += Strangers::first_avoidance;
  EXPECT_FALSE(avoided());
}

TEST_F(StrangersTest, are_forgotten_after_a_single_long_yield) {
  yield(6ms);
  for (int i = 0; i < Strangers::yields_timed; ++i) {
    EXPECT_TRUE(strangers.suspected());
    yield(5us);
  }
  EXPECT_FALSE(strangers.suspected());
  EXPECT_FALSE(avoided());
}

TEST_F(StrangersTest, are_not_peers_that_work_in_one_wait) {
  strangers.begin_wait();
  for (int i = 0; i < 100; ++i) {
    yield(6ms);
    ASSERT_FALSE(avoided()) << i;
  }
}

TEST_F(StrangersTest, are_not_peers_that_compute_once_in_many_calls) {
  for (std::uint64_t wait = 0; wait < 100 * Strangers::most_waits; ++wait) {
    strangers.begin_wait();
    yield(wait % Strangers::most_waits < Strangers::long_waits - 1 ? 6ms : 5us);
    ASSERT_FALSE(avoided()) << wait;
  }
}

TEST_F(StrangersTest, are_avoided_longer_the_more_often_they_are_met) {
  const auto meet = [this] {
    yield(6ms);
    for (std::uint64_t wait = 0; wait < Strangers::long_waits; ++wait) {
      strangers.begin_wait();
      yield(6ms);
    }
    ASSERT_TRUE(avoided());
    const auto begin = now;
    while (avoided()) {
      now += 1ms;
    }
    last = now - begin;
  };
  for (const auto expected : {100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    meet();
    EXPECT_EQ(last, expected);
  }
  now += 2s;
  meet();
  EXPECT_EQ(last, 100ms) << "after a while without";
}

}  // namespace
}  // namespace sprat::comm
