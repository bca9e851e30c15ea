// How threads sleep that have nothing to drive.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/context/bells.hpp"
#include "comm/context/progress.hpp"
#include "tests/unit/comm/context/patient_wait_policy.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

/// Sleeps take no time, and are counted; so are the points at which a thread announces itself.
class CountingWaitPolicy final : public WaitPolicy {
 public:
  Clock::time_point now() noexcept override { return Clock::now(); }
  Clock::time_point recent() noexcept override { return Clock::now(); }
  bool rest(int, Awaited) noexcept override { return false; }
  void yield() noexcept override { std::this_thread::yield(); }
  void sleep(std::atomic<std::uint32_t>&, std::uint32_t,
             std::chrono::nanoseconds) noexcept override {
    ++sleeps;
  }
  void poll(std::span<pollfd>, std::chrono::nanoseconds) noexcept override { ++sleeps; }
  void wake(std::atomic<std::uint32_t>&, int) noexcept override {}
  void lock(std::mutex& mutex) noexcept override { mutex.lock(); }
  void point() noexcept override { ++points; }

  std::atomic<int> sleeps = 0, points = 0;
};

/// A wire that has news when its descriptor says so. Its threads wait for a number of messages, so
/// it rings for each.
class EventWire final : public MessageTransport, private NewsDescriptors {
 public:
  EventWire() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EventWire() override { close(descriptor_); }
  EventWire(const EventWire&) = delete;
  EventWire& operator=(const EventWire&) = delete;
  const char* name() const override { return "event"; }
  Blob address() override { return {}; }
  void connect(std::span<const Blob>) override {}
  void send(MessageRequest&, int, std::uint64_t, std::span<const std::byte>) override {}
  void recv(MessageRequest&, int, std::uint64_t, std::span<std::byte>) override {}
  std::optional<std::size_t> probe(int, std::uint64_t) noexcept override { return {}; }
  void cancel(MessageRequest&) noexcept override {}
  NewsDescriptors* news() noexcept override { return this; }
  bool progress() noexcept override {
    std::uint64_t events = 0;
    const bool moved = read(descriptor_, &events, sizeof events) == sizeof events || told_ > 0;
    arrived += static_cast<int>(events + std::exchange(told_, 0));
    if (moved) {
      bells->ring_self();
    }
    return moved;
  }
  void deliver() {
    const std::uint64_t one = 1;
    ASSERT_EQ(write(descriptor_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  std::atomic<int> arrived = 0;
  Bells* bells = nullptr;
  std::function<void()> asked = [] {};  ///< Called, with the token, by who asks for news.

 private:
  std::span<const int> descriptors() const noexcept override { return {&descriptor_, 1}; }
  // As epoll, whose events are told once.
  Next next() noexcept override {
    asked();
    std::uint64_t events = 0;
    told_ += read(descriptor_, &events, sizeof events) == sizeof events ? events : 0;
    return Next::sleep;
  }
  int descriptor_;
  std::uint64_t told_ = 0;  ///< By next(), and not moved yet.
};

struct SleepingRank {
  explicit SleepingRank(WaitPolicy& policy)
      : bells(policy, header, 0), progress(policy, bells, {.may_start_thread = false}) {
    bells.connect({{&header, getpid()}}, false);
  }
  void open(std::unique_ptr<MessageTransport> wire) {
    progress.open({.local = nullptr, .wire = std::move(wire)}, waiting, waited_ns, true);
    const auto token = progress.take_token();
    progress.begin_messages(1);
  }

  ControlHeader header{};
  std::atomic<std::int64_t> waiting = 0, waited_ns = 0;
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

/// A rank whose wire has a descriptor, and what its threads do.
struct WiredRank {
  WiredRank() {
    auto made = std::make_unique<EventWire>();
    wire = made.get();
    wire->bells = &rank.bells;
    rank.open(std::move(made));
  }
  /// Until so many of its threads poll, and so many sleep on the bell. A moment is enough: a sleep
  /// that has lasted its time ends, and another begins.
  void await(int polling, int sleeping) {
    const auto enough = Clock::now() + 20s;
    while (policy.polling != polling || policy.sleeping != sleeping) {
      ASSERT_LT(Clock::now(), enough) << policy.polling << " poll, " << policy.sleeping << " sleep";
      std::this_thread::yield();
    }
  }
  std::thread wait_for(int messages) {
    return std::thread([this, messages] {
      rank.progress.drive_until([=, this] { return wire->arrived >= messages; });
    });
  }

  PatientWaitPolicy policy;
  SleepingRank rank{policy};
  EventWire* wire = nullptr;
};

TEST(Sleeping, ends_when_the_wire_has_news) {
  WiredRank one;
  std::thread waiting = one.wait_for(20);
  for (int message = 0; message < 20; ++message) {
    one.await(1, 0);
    one.wire->deliver();
    while (one.wire->arrived == message) {
      std::this_thread::yield();
    }
  }
  waiting.join();
  EXPECT_EQ(one.policy.overslept, 0);
  EXPECT_EQ(one.rank.header.sleepers, 0u);
  EXPECT_EQ(one.rank.header.polling, 0u);
}

/// Whoever polled and has what it waited for leaves the wire to another.
TEST(Sleeping, hands_the_wire_on_to_another_thread_that_waits) {
  WiredRank one;
  constexpr int threads = 3;
  std::vector<std::thread> waiting;
  for (int thread = 1; thread <= threads; ++thread) {
    waiting.push_back(one.wait_for(thread));
    one.await(1, thread - 1);
  }
  for (int message = 1; message <= threads; ++message) {
    one.wire->deliver();
    waiting[static_cast<std::size_t>(message - 1)].join();
    one.await(message < threads ? 1 : 0, std::max(0, threads - message - 1));
  }
  EXPECT_EQ(one.policy.overslept, 0);
}

/// Another thread, which goes its way, has the token when the one that was told of a message wants
/// to drive.
TEST(Sleeping, does_not_begin_before_the_wire_was_driven_that_has_told_of_something) {
  WiredRank one;
  std::atomic<bool> has_token = false;
  std::thread other;
  one.wire->asked = [&] {
    if (other.joinable()) {
      return;
    }
    one.wire->deliver();
    one.rank.progress.after_token([&] {  // by the thread that asked, once it has let go of it
      other = std::thread([&] {
        const auto token = one.rank.progress.take_token();
        has_token = true;
        has_token.notify_all();
        // Long enough for the other one to see it, and sleep.
        const auto enough = Clock::now() + 50ms;
        while (one.policy.polling == 0 && Clock::now() < enough) {
          std::this_thread::yield();
        }
      });
      has_token.wait(false);
    });
  };
  one.rank.progress.drive_until([&] { return one.wire->arrived == 1; });
  other.join();
  EXPECT_EQ(one.policy.overslept, 0);
}

/// Leaves one long task once a message has come.
class TaskOfNews final : public Driver, private BulkTask {
 public:
  explicit TaskOfNews(const std::atomic<int>& arrived) : arrived_(arrived) {}
  Advance advance() noexcept override {
    return {.moved = false, .left = arrived_ > 0 && !over ? this : nullptr};
  }
  std::uint64_t communicator() const noexcept override { return no_communicator; }
  Recall called(std::uint64_t) const override { return {}; }
  std::string under_way() const override { return ""; }

  std::atomic<bool> running = false, may_end = false, over = false;

 private:
  void run() noexcept override {
    running = true;
    running.notify_all();
    may_end.wait(false);
    over = true;
  }
  const std::atomic<int>& arrived_;
};

/// Who polled has no eye on the wire while it copies and reduces without the token.
TEST(Sleeping, hands_the_wire_on_before_a_task) {
  WiredRank one;
  TaskOfNews driver(one.wire->arrived);
  {
    const auto token = one.rank.progress.take_token();
    one.rank.progress.drivers().add(&driver);
  }
  std::thread works = one.wait_for(2);
  one.await(1, 0);
  std::thread other = one.wait_for(2);
  one.await(1, 1);
  one.wire->deliver();
  driver.running.wait(false);
  one.await(1, 0);  // the other one polls
  one.wire->deliver();
  other.join();
  driver.may_end = true;
  driver.may_end.notify_all();
  works.join();
  EXPECT_EQ(one.policy.overslept, 0);
}

}  // namespace
}  // namespace sprat::comm
