// Whether other processes compute on the cores that ranks wait on.
//
// A rank that yields has its core back in microseconds if those before it are ranks that wait as
// well: each looks, and yields. Behind a stranger that computes it waits for a time slice of the
// kernel's, some milliseconds, each time; who sleeps and is woken goes ahead of strangers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

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
  /// After a yield that seems long so many are timed. The clock costs a tenth of a yield, so most
  /// are not timed.
  static constexpr int yields_timed = 16;
  /// A peer that copies, reduces, or computes between calls takes its time slices as well, but then
  /// it comes: that makes one wait long, or two. Strangers make most of them long. So many have to
  /// be long, of so many in a row, before strangers are avoided.
  static constexpr std::uint64_t long_waits = 3, most_waits = 16;
  /// Ranks sleep instead of yielding for so long after strangers were met, twice as long each time
  /// that they are met again soon.
  static constexpr std::chrono::milliseconds first_avoidance{100}, longest_avoidance{1'000};

  /// Another wait begins. Not counted in one instruction, whose lock costs a short call 4 %.
  void begin_wait() noexcept {
    waits_.store(waits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// A yield that was not timed seems to have been long.
  void suspect() noexcept { timed_.store(yields_timed, std::memory_order_relaxed); }
  /// The next yield is to be timed.
  bool suspected() const noexcept { return timed_.load(std::memory_order_relaxed) > 0; }
  /// A timed yield of this wait took so long, and is over now.
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
  bool are_met_in(std::uint64_t wait) noexcept;

  std::atomic<int> timed_ = 0;                  ///< Yields that are to be timed.
  std::atomic<std::uint64_t> waits_ = 0;        ///< Begun so far.
  std::atomic<std::uint64_t> last_long_ = 0;    ///< The last that was long,
  std::atomic<std::uint64_t> first_long_ = 0;   ///< the first that counts with it,
  std::atomic<std::uint64_t> count_long_ = 0;   ///< and how many they are.
  std::atomic<Clock::duration> avoid_until_{};  ///< Since the clock's epoch; zero: no strangers.
  std::atomic<Clock::duration> avoidance_{};    ///< The last one,
  std::atomic<Clock::duration> ended_{};        ///< and when it was to end.
};

}  // namespace sprat::comm
