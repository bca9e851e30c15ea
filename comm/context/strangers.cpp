#include "comm/context/strangers.hpp"

#include <algorithm>

namespace sprat::comm {

// All of it relaxed: nothing else is published with it.
void Strangers::yielded(Clock::duration took, Clock::time_point now) noexcept {
  if (took < least_slice) {
    timed_.fetch_sub(1, std::memory_order_relaxed);
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

}  // namespace sprat::comm
