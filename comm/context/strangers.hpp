// Whether other processes compute on the cores that ranks wait on.
//
// A rank that yields has its core back in microseconds if those before it are ranks that wait as
// well: each looks, and yields. Behind a stranger that computes it waits for a time slice of the
// kernel's, some milliseconds, each time; who sleeps and is woken goes ahead of strangers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include "comm/context/wait_policy.hpp"

namespace sprat::comm {

/// Fed with what yields took; any thread. A turn that is lost to a race is noticed at the next one.
class Strangers {
 public:
  /// Ranks that take turns need less, a hundred on a core; a stranger's time slice is longer.
  static constexpr std::chrono::microseconds least_slice{500};
  /// Every announcement wakes all who sleep, so of many ranks that sleep each is woken many times
  /// before all have come. Beside four busy loops on two cores, 16 ranks that sleep take 0.8 of the
  /// time of 16 that yield, 8 a twentieth; beside strangers that come and go ten times as long.
  static constexpr std::size_t most_ranks_a_core = 4;
  /// After a tick of the kernel's clock so many yields are timed. One tick says little: where turns
  /// are short, one yield in a hundred meets it. The clock that is exact costs a tenth of a yield,
  /// so most are not timed.
  static constexpr int yields_timed = 16;
  /// Ranks sleep instead of yielding for so long after strangers were met, twice as long each time
  /// that they are met again soon.
  static constexpr std::chrono::milliseconds first_avoidance{100}, longest_avoidance{1'000};

  /// A yield that was not timed has taken a tick.
  void suspect() noexcept { timed_.store(yields_timed, std::memory_order_relaxed); }
  /// The next yield is to be timed.
  bool suspected() const noexcept { return timed_.load(std::memory_order_relaxed) > 0; }
  /// A timed yield took so long, and is over now.
  void yielded(Clock::duration took, Clock::time_point now) noexcept;

  /// May be asked often: the time is asked for only while strangers are avoided.
  template <class Now>
  bool avoided(const Now& now) noexcept {
    const Clock::duration until = avoid_until_.load(std::memory_order_relaxed);
    if (until == Clock::duration::zero()) [[likely]] {
      return false;
    }
    if (now().time_since_epoch() < until) {
      return true;
    }
    avoid_until_.store(Clock::duration::zero(), std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<int> timed_ = 0;                  ///< Yields that are to be timed.
  std::atomic<Clock::duration> avoid_until_{};  ///< Since the clock's epoch; zero: no strangers.
  std::atomic<Clock::duration> avoidance_{};    ///< The last one,
  std::atomic<Clock::duration> ended_{};        ///< and when it was to end.
};

}  // namespace sprat::comm
