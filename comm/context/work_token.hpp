// The token of a rank's work: whoever holds it drives, and nobody else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/context/wait_policy.hpp"

namespace sprat::comm {

/// Any thread.
class WorkToken {
 public:
  explicit WorkToken(WaitPolicy& wait_policy) : wait_policy_(wait_policy) {}

  /// The token, while somebody has it. Who lets it go then makes the calls of after().
  class Held {
   public:
    Held(WorkToken& token, std::unique_lock<std::mutex> lock)
        : token_(&token), lock_(std::move(lock)) {}
    Held(Held&&) = default;
    [[gnu::hot]] ~Held() { unlock(); }
    explicit operator bool() const { return lock_.owns_lock(); }
    [[gnu::hot]] void unlock() {
      if (!lock_.owns_lock()) {
        return;
      }
      std::vector<std::function<void()>> calls;
      calls.swap(token_->after_);
      lock_.unlock();  // a call may end the last Work that keeps the context, and so the token
      for (const auto& call : calls) {
        call();
      }
    }

   private:
    WorkToken* token_;
    std::unique_lock<std::mutex> lock_;
  };

  Held take() {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    wait_policy_.lock(mutex_);
    wanted_.fetch_sub(1, std::memory_order_relaxed);
    taken_.fetch_add(1, std::memory_order_relaxed);
    return {*this, std::unique_lock(mutex_, std::adopt_lock)};
  }
  /// Empty if another thread has it.
  Held try_take() { return {*this, std::unique_lock(mutex_, std::try_to_lock)}; }
  /// Another thread waits in take(). A hint.
  bool wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }
  /// How often take() had it. A hint.
  std::uint32_t taken() const { return taken_.load(std::memory_order_relaxed); }

  /// Makes this call once the token has been let go. Token held.
  void after(std::function<void()> call) { after_.push_back(std::move(call)); }
  /// after() was called since it was taken. Token held.
  bool has_calls() const { return !after_.empty(); }

 private:
  WaitPolicy& wait_policy_;
  std::mutex mutex_;
  std::atomic<int> wanted_ = 0;           ///< Threads in take(). Relaxed: a hint.
  std::atomic<std::uint32_t> taken_ = 0;  ///< The same.
  std::vector<std::function<void()>> after_;
};

}  // namespace sprat::comm
