// Who moves what while a task runs without the token.
#include "comm/context/progress.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace sprat::comm {
namespace {

/// Leaves so many tasks, each of which lasts until it may end.
class SlowDriver final : public Driver, private BulkTask {
 public:
  explicit SlowDriver(int tasks) : tasks_(tasks) {}
  Advance advance() noexcept override {
    ++advances;
    return {.moved = false, .left = runs < tasks_ ? this : nullptr};
  }
  std::uint64_t communicator() const noexcept override { return no_communicator; }
  Recall called(std::uint64_t) const override { return {}; }
  std::string under_way() const override { return ""; }

  std::atomic<bool> running = false, may_end = false;
  std::atomic<int> runs = 0;
  int advances = 0;  ///< Guarded by the token.

  void end_tasks() {
    may_end = true;
    may_end.notify_all();
  }

 private:
  void run() noexcept override {
    running = true;
    running.notify_all();
    may_end.wait(false);
    ++runs;
  }

  const int tasks_;
};

class ProgressTest : public testing::Test {
 protected:
  std::unique_ptr<WaitPolicy> wait_policy = real_wait_policy();
  ControlHeader header{};
  Bells bells{*wait_policy, header, 0};
  Progress progress{*wait_policy, bells, {}};
  SlowDriver slow{1};

  /// A thread in the midst of the slow driver's task.
  std::thread start_task() {
    {
      const auto token = progress.take_token();
      progress.drivers().add(&slow);
    }
    std::thread thread([this] { EXPECT_TRUE(progress.drive_once()); });
    slow.running.wait(false);
    return thread;
  }
};

TEST_F(ProgressTest, lends_the_token_while_a_task_runs) {
  std::thread working = start_task();
  EXPECT_TRUE(progress.try_token());
  slow.end_tasks();
  working.join();
}

TEST_F(ProgressTest, leaves_a_driver_alone_while_its_task_runs) {
  std::thread working = start_task();
  EXPECT_FALSE(progress.drive_once());
  EXPECT_EQ(slow.advances, 1);
  slow.end_tasks();
  working.join();
  EXPECT_FALSE(progress.drive_once());
  EXPECT_EQ(slow.advances, 2);
}

TEST_F(ProgressTest, removes_a_driver_once_its_task_is_over) {
  std::thread working = start_task();
  std::thread removing([this] {
    progress.remove(&slow);
    EXPECT_EQ(slow.runs, 1);
  });
  slow.end_tasks();
  removing.join();
  working.join();
  EXPECT_FALSE(progress.drive_once());
  EXPECT_EQ(slow.advances, 1);
}

TEST_F(ProgressTest, waits_for_tasks_of_a_communicator_that_have_begun) {
  std::thread working = start_task();
  progress.await_tasks(slow.communicator() - 1);  // not for those of others
  std::thread awaiting([this] {
    progress.await_tasks(slow.communicator());
    EXPECT_EQ(slow.runs, 1);
  });
  slow.end_tasks();
  awaiting.join();
  working.join();
  progress.await_tasks(slow.communicator());
}

TEST_F(ProgressTest, takes_the_tasks_of_drivers_in_turn) {
  SlowDriver one(2), other(2);
  one.end_tasks();
  other.end_tasks();
  {
    const auto token = progress.take_token();
    progress.drivers().add(&one);
    progress.drivers().add(&other);
  }
  for (int round = 1; round <= 2; ++round) {
    EXPECT_TRUE(progress.drive_once());
    EXPECT_EQ(one.runs, round);
    EXPECT_TRUE(progress.drive_once());
    EXPECT_EQ(other.runs, round);
  }
  EXPECT_FALSE(progress.drive_once());
}

}  // namespace
}  // namespace sprat::comm
