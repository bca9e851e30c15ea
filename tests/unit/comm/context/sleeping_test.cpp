// How threads sleep that have nothing to drive.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/context/bells.hpp"
#include "comm/context/progress.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

/// Sleeps take no time, and are counted; so are the points at which a thread announces itself.
class CountingWaitPolicy final : public WaitPolicy {
 public:
  Clock::time_point now() noexcept override { return Clock::now(); }
  Clock::time_point recent() noexcept override { return Clock::now(); }
  bool rest(int, bool) noexcept override { return false; }
  void yield() noexcept override { std::this_thread::yield(); }
  void sleep(std::atomic<std::uint32_t>&, std::uint32_t,
             std::chrono::nanoseconds) noexcept override {
    ++sleeps;
  }
  void wake(std::atomic<std::uint32_t>&, int) noexcept override {}
  void lock(std::mutex& mutex) noexcept override { mutex.lock(); }
  void point() noexcept override { ++points; }

  std::atomic<int> sleeps = 0, points = 0;
};

struct SleepingRank {
  explicit SleepingRank(WaitPolicy& policy)
      : bells(policy, header, 0), progress(policy, bells, {.may_start_thread = false}) {
    bells.connect({&header}, false);
  }
  void open(std::unique_ptr<MessageTransport> wire) {
    progress.open({.local = nullptr, .wire = std::move(wire)}, waiting, true);
    const auto token = progress.take_token();
    progress.begin_messages(1);
  }

  ControlHeader header{};
  std::atomic<std::int64_t> waiting = 0;
  Bells bells;
  Progress progress;
};

/// Each announcement interrupts all who work on the machine: once an idle time, not once a sleep.
TEST(Sleeping, announces_once_that_it_sleeps_however_often_it_looks) {
  CountingWaitPolicy wait_policy;
  SleepingRank rank(wait_policy);
  rank.open(nullptr);
  rank.progress.drive_until([&] { return wait_policy.sleeps == 100; });
  EXPECT_EQ(wait_policy.points, 1);
  EXPECT_EQ(rank.header.sleepers, 0u);
}

}  // namespace
}  // namespace sprat::comm
