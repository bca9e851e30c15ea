// The last events stay, from however many threads they come, and none of them takes memory.
#include "comm/timeline/event_ring.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace sprat::comm::timeline {
namespace {

TraceEvent numbered(std::int64_t number) {
  return {.row = TraceRow::computes,
          .name = "a name that is longer than what is kept of it",
          .start = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(number)),
          .end = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(number + 1)),
          .sequence = number};
}

TEST(EventRing, keeps_the_last_ones_in_their_order) {
  EventRing ring(0, 4);
  EXPECT_TRUE(ring.events().empty());
  for (int number = 0; number < 10; ++number) {
    ring.add(numbered(number));
  }
  const std::vector<RecordedEvent> events = ring.events();
  ASSERT_EQ(events.size(), 4u);
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].sequence, static_cast<std::int64_t>(6 + i));
    EXPECT_EQ(text_of(events[i].name), "a name that is longer than what");
  }
  EXPECT_EQ(ring.added(), 10u);
}

TEST(EventRing, numbers_are_no_other_ranks) {
  EventRing first(0, 1), second(1, 1);
  const std::set<std::uint64_t> numbers = {first.unique(), first.unique(), second.unique(),
                                           second.unique()};
  EXPECT_EQ(numbers.size(), 4u);
  EXPECT_FALSE(numbers.contains(0));
}

TEST(EventRingThreads, add_while_another_reads_and_events_stay_whole) {
  EventRing ring(0, 64);
  constexpr int threads = 4, each = 5000;
  std::atomic<int> running = threads;
  std::vector<std::thread> adding;
  for (int thread = 0; thread < threads; ++thread) {
    adding.emplace_back([&] {
      for (int number = 0; number < each; ++number) {
        ring.add(numbered(number));
      }
      --running;
    });
  }
  int reads = 0;
  do {
    for (const RecordedEvent& event : ring.events()) {
      ASSERT_EQ(event.start_ns, event.sequence);
      ASSERT_EQ(event.end_ns, event.sequence + 1);
    }
    ++reads;
  } while (running > 0);
  for (std::thread& thread : adding) {
    thread.join();
  }
  EXPECT_GT(reads, 0);
  EXPECT_EQ(ring.added(), std::uint64_t{threads} * each);
}

}  // namespace
}  // namespace sprat::comm::timeline
