// When the progress thread is woken for work that nobody has promised to wait for.
#include "comm/context/unattended.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

constexpr Clock::time_point begin{std::chrono::seconds(1)};

void wait_promptly(PromptWaits& waits, int times) {
  for (int at = 0; at < times; ++at) {
    waits.note_start(begin);
    waits.note_wait(begin + PromptWaits::soon);
  }
}

TEST(PromptWaits, are_expected_once_many_have_come_in_a_row) {
  PromptWaits waits;
  wait_promptly(waits, PromptWaits::enough - 1);
  EXPECT_FALSE(waits.expected());
  wait_promptly(waits, 1);
  EXPECT_TRUE(waits.expected());
}

TEST(PromptWaits, are_expected_no_more_once_one_comes_late_or_not_at_all) {
  for (const bool late : {false, true}) {
    PromptWaits waits;
    wait_promptly(waits, 10 * PromptWaits::enough);
    waits.note_start(begin);
    EXPECT_TRUE(waits.may_come(begin + PromptWaits::soon));
    EXPECT_FALSE(waits.may_come(begin + PromptWaits::soon + 1ns));
    if (late) {
      waits.note_wait(begin + PromptWaits::soon + 1ns);
    } else {
      waits.note_none();
    }
    EXPECT_FALSE(waits.expected());
    wait_promptly(waits, PromptWaits::enough - 1);
    EXPECT_FALSE(waits.expected());
  }
}

/// A progress thread that counts how often it looks whether somebody waits, and takes each piece of
/// work that nobody waits for as done.
struct Thread {
  Thread() {
    thread = std::thread([this] {
      while (unattended.await(
          [this] {
            ++looks;
            return waiting.load();
          },
          [] {})) {
        ++driven;
        driven.notify_all();
        unattended.less();
      }
    });
  }
  ~Thread() {
    unattended.stop();
    thread.join();
  }

  std::unique_ptr<WaitPolicy> wait_policy = real_wait_policy();
  Unattended unattended{*wait_policy};
  std::atomic<bool> waiting = false;
  std::atomic<int> looks = 0, driven = 0;
  std::thread thread;
};

TEST(Unattended, is_looked_after_where_nobody_waits) {
  Thread progress;
  for (int at = 0; at < 100; ++at) {
    progress.unattended.more();
    progress.driven.wait(at);
    EXPECT_EQ(progress.driven, at + 1);
  }
}

// For each piece of work it would be woken otherwise, and look.
TEST(Unattended, is_left_alone_while_waits_come_at_once) {
  Thread progress;
  progress.waiting = true;
  const auto call = [&] {
    progress.unattended.more();
    progress.unattended.note_wait();
    progress.unattended.less();
  };
  int looks = 0;
  double looks_by_itself = 0;
  for (int block = 0; block < 50; ++block) {
    const auto start = Clock::now();
    for (int at = 0; at < 2 * PromptWaits::enough; ++at) {
      call();
    }
    const int before = progress.looks;
    for (int at = 0; at < 1'000; ++at) {
      call();
    }
    looks += progress.looks - before;
    looks_by_itself += 1 + std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  EXPECT_LE(looks, looks_by_itself);
}

// It was not woken, so it has to look by itself.
TEST(Unattended, is_found_where_a_wait_was_expected_and_none_comes) {
  Thread progress;
  progress.waiting = true;
  for (int round = 1; round <= 20; ++round) {
    for (int at = 0; at < 2 * PromptWaits::enough; ++at) {
      progress.unattended.more();
      progress.unattended.note_wait();
      progress.unattended.less();
    }
    progress.waiting = false;
    progress.unattended.more();
    progress.driven.wait(round - 1);
    EXPECT_EQ(progress.driven, round);
    progress.waiting = true;
  }
}

}  // namespace
}  // namespace sprat::comm
