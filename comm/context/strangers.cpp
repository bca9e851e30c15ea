#include "comm/context/strangers.hpp"

#include <algorithm>

namespace sprat::comm {

// All of it relaxed: nothing else is published with it.
[[gnu::hot]] void Strangers::yielded(Clock::duration took, Clock::time_point now) noexcept {
  if (took < least_slice) {
    timed_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  timed_.store(yields_timed, std::memory_order_relaxed);
  if (!are_met_in(waits_.load(std::memory_order_relaxed))) {
    return;
  }
  const Clock::duration time = now.time_since_epoch();
  const Clock::duration last = avoidance_.load(std::memory_order_relaxed);
  const bool again = time - ended_.load(std::memory_order_relaxed) < longest_avoidance;
  const Clock::duration next =
      again ? std::min<Clock::duration>(2 * last, longest_avoidance) : first_avoidance;
  avoidance_.store(next, std::memory_order_relaxed);
  ended_.store(time + next, std::memory_order_relaxed);
  avoid_until_.store(time + next, std::memory_order_relaxed);
  timed_.store(0, std::memory_order_relaxed);
}

// Counts each wait once, however many of its yields were long.
[[gnu::hot]] bool Strangers::are_met_in(std::uint64_t wait) noexcept {
  const std::uint64_t count = count_long_.load(std::memory_order_relaxed);
  if (count > 0 && wait == last_long_.load(std::memory_order_relaxed)) {
    return false;
  }
  last_long_.store(wait, std::memory_order_relaxed);
  if (count == 0 || wait - first_long_.load(std::memory_order_relaxed) >= most_waits) {
    first_long_.store(wait, std::memory_order_relaxed);
    count_long_.store(1, std::memory_order_relaxed);
    return false;
  }
  const bool met = count + 1 == long_waits;
  count_long_.store(met ? 0 : count + 1, std::memory_order_relaxed);
  return met;
}

}  // namespace sprat::comm
