// Who publishes and who is about to sleep: one of them sees the other.
#include "comm/context/fences.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sprat::comm {
namespace {

TEST(Fences, let_one_of_two_see_the_other) {
  if (!register_fences()) {
    GTEST_SKIP() << "this kernel has no membarrier()";
  }
  constexpr int rounds = 20'000;
  std::atomic<int> published = 0, sleeping = 0, begun = 0, ended = 0;
  int lost = 0, saw_sleeper = 0;
  std::thread publisher([&] {
    for (int round = 1; round <= rounds; ++round) {
      while (begun.load() < round) {
        std::this_thread::yield();
      }
      published.store(round, std::memory_order_relaxed);
      light_fence();
      saw_sleeper = sleeping.load(std::memory_order_relaxed) == round ? 1 : 0;
      ended.store(round);
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    begun.store(round);
    sleeping.store(round, std::memory_order_relaxed);
    heavy_fence();
    const bool saw_news = published.load(std::memory_order_relaxed) == round;
    while (ended.load() < round) {
      std::this_thread::yield();
    }
    lost += !saw_news && saw_sleeper == 0 ? 1 : 0;
  }
  publisher.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace sprat::comm
