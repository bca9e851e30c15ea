// Once a second: what took the cores, and the budget's decision on it, whether or not anybody asks
// for reports.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "io/cores/core_budget.hpp"
#include "io/report/interval.hpp"

namespace sprat::io {

/// Any thread, several at once.
class CoreWatch final {
 public:
  using Clock = std::chrono::steady_clock;
  explicit CoreWatch(std::shared_ptr<CoreBudget> cores) : cores_(std::move(cores)) {}

  /// `waited` is what the consumer has waited since the loader began, or was resumed.
  void look(std::chrono::nanoseconds waited, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (now < looked_ + std::chrono::seconds(1)) {
      return;
    }
    const double seconds = std::chrono::duration<double>(now - std::exchange(looked_, now)).count();
    const std::chrono::duration<double> wait = waited - std::exchange(waited_, waited);
    const CoreUse use = cores_->observe(std::clamp(wait.count() / seconds, 0.0, 1.0));
    sum_.budget = use.budget;
    sum_.decode_seconds += use.decode_seconds;
    sum_.read_seconds += use.read_seconds;
    sum_.reduced_bytes += use.reduced_bytes;
    sum_.reduced_in_seconds += use.reduced_in_seconds;
    if (use.slowdown) {
      sum_.slowdown = std::max(0.0, *use.slowdown);  // what is below it is noise
    }
  }
  /// Since the last call. What is of less than a second is told the next time.
  CoresInterval take() {
    const std::lock_guard lock(mutex_);
    CoresInterval kept{.budget = sum_.budget, .slowdown = sum_.slowdown};
    return std::exchange(sum_, kept);
  }

 private:
  const std::shared_ptr<CoreBudget> cores_;  // shared with those who decode and reduce
  std::mutex mutex_;                         // guards what follows
  Clock::time_point looked_ = Clock::now();
  std::chrono::nanoseconds waited_{};
  CoresInterval sum_;
};

}  // namespace sprat::io
