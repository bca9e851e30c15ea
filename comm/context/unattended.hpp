// Work in flight that nobody has promised to wait for, and when the progress thread looks after it.
//
// Who starts such work mostly does something else meanwhile, so the thread is woken. But who waits
// for it right away drives it, and a thread that is woken only takes the core, or the token, away
// from that: a message of 8 B takes several times as long. So waits are watched, and while they
// come at once the thread is not woken but looks by itself now and then.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "comm/context/wait_policy.hpp"

namespace sprat::comm {

/// Whether waits have come soon after the work that they are for. Any thread.
class PromptWaits {
 public:
  /// Work has been started.
  void note_start(Clock::time_point now) noexcept {
    started_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// Some has been started so lately that its wait may be to come.
  bool may_come(Clock::time_point now) const noexcept {
    const Clock::duration started(started_.load(std::memory_order_relaxed));
    return now.time_since_epoch() - started <= soon;
  }
  /// A thread begins to wait while there is such work.
  void note_wait(Clock::time_point now) noexcept;
  /// Nobody has waited for it, for long.
  void note_none() noexcept { number_.store(0, std::memory_order_relaxed); }
  /// The last ones have, and so will the next.
  bool expected() const noexcept { return number_.load(std::memory_order_relaxed) >= enough; }

  /// Whoever computes in between takes longer.
  static constexpr std::chrono::microseconds soon{50};
  static constexpr int enough = 64;

 private:
  // Both are hints.
  std::atomic<Clock::rep> started_ = 0;
  std::atomic<int> number_ = 0;  ///< In a row.
};

/// Any thread.
class Unattended {
 public:
  explicit Unattended(WaitPolicy& wait_policy) : wait_policy_(wait_policy) {}

  /// There is one more or one less.
  void more();
  void less();
  /// A thread begins to wait, for anything.
  void note_wait() noexcept {
    if (number_.load(std::memory_order_relaxed) > 0) {
      waits_.note_wait(wait_policy_.now());
    }
  }

  // --- the progress thread ----------------------------------------------------------------------
  /// Waits until there is some and `attended`, which says whether a thread waits and so drives,
  /// says no. `before_sleep` comes before each sleep. False: it is to end.
  bool await(const std::function<bool()>& attended, const std::function<void()>& before_sleep);
  /// Ends await(), now and from now on.
  void stop();

 private:
  WaitPolicy& wait_policy_;
  PromptWaits waits_;
  std::mutex mutex_;  ///< Guards what follows; the number is written under it.
  std::condition_variable wake_;
  std::atomic<int> number_ = 0;
  std::uint64_t started_ = 0;  ///< How many there have been.
  bool looks_ = false;         ///< The thread will look by itself: it needs not be woken.
  bool stopping_ = false;
};

}  // namespace sprat::comm
