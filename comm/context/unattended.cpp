#include "comm/context/unattended.hpp"

#include <utility>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// How late the thread may be once, where a wait was expected and none came.
constexpr auto between_looks = 1ms;
// In vain, one after the other: then it is woken again instead.
constexpr int most_looks = 100;

}  // namespace

void PromptWaits::note_wait(Clock::time_point now) noexcept {
  if (!may_come(now)) {
    note_none();
  } else if (!expected()) {
    number_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Unattended::more() {
  waits_.note_start(wait_policy_.now());
  const std::lock_guard lock(mutex_);
  number_.fetch_add(1, std::memory_order_relaxed);
  ++started_;
  if (!looks_) {
    wake_.notify_one();
  }
}

void Unattended::less() {
  const std::lock_guard lock(mutex_);
  number_.fetch_sub(1, std::memory_order_relaxed);
}

bool Unattended::await(const std::function<bool()>& attended,
                       const std::function<void()>& before_sleep) {
  std::unique_lock lock(mutex_);
  bool looked = false;
  int in_vain = 0;
  while (!stopping_) {
    const bool any = number_.load(std::memory_order_relaxed) > 0, expected = waits_.expected();
    if (any && !attended()) {
      if (!looked || !expected) {
        return true;
      }
      if (!waits_.may_come(wait_policy_.now())) {
        waits_.note_none();
        return true;
      }
    }
    before_sleep();
    looks_ = any || (expected && in_vain < most_looks);
    if (looks_) {
      const std::uint64_t seen = started_;
      wake_.wait_for(lock, between_looks);
      in_vain = started_ == seen ? in_vain + 1 : 0;
    } else {
      wake_.wait(lock, [this] { return stopping_ || number_.load(std::memory_order_relaxed) > 0; });
      in_vain = 0;
    }
    looked = std::exchange(looks_, false);
  }
  return false;
}

void Unattended::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

}  // namespace sprat::comm
