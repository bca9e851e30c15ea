// Whoever wants to know how long reductions take: a loader, which shares the cores with them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

namespace sprat {

class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;
  /// A reduction of `bytes` on this rank has just ended, `took` after it began: for its user, from
  /// the call to the end of the wait. Any thread; takes less than a microsecond, never waits.
  virtual void note_reduction(std::chrono::nanoseconds took, std::size_t bytes) noexcept = 0;
};

/// Those of this process. Any thread.
class ReductionObservers {
 public:
  /// Is told of all reductions from now on, while it lives.
  static void add(const std::shared_ptr<ReductionObserver>& observer);
  /// Whether it is worth taking the time of a reduction.
  static bool any() noexcept { return count_.load(std::memory_order_relaxed) > 0; }
  static void tell(std::chrono::nanoseconds took, std::size_t bytes) noexcept;

 private:
  // Relaxed: who sees it late misses a reduction or looks for nobody.
  static std::atomic<int> count_;
};

}  // namespace sprat
