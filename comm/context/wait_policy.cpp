// The machine's own wait policy.
#include "comm/context/wait_policy.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace sprat::comm {
namespace {

// Rounds of driving that move nothing, before giving the core away, and before sleeping. A round
// takes about 50 ns; a yield a microsecond or more.
constexpr int spin_rounds = 2'000;
// The first of them follow each other at once: what is about to come is seen the sooner.
constexpr int eager_rounds = 64;
constexpr int yield_rounds = 400;
// A core that comes back a tick of the kernel's coarse clock later, twice in a few yields, was with
// somebody who computes: ranks that wait as well give it back in microseconds. Waiting in line
// behind such strangers costs a time slice of the kernel's, some milliseconds, each time; who
// sleeps and is woken goes ahead of them. The fine clock would cost a tenth of a yield.
constexpr int strangers_ticks = 2, yields_remembered = 16;
// So ranks sleep instead of yielding, for so long after strangers were met, twice as long each time
// that they are met again.
constexpr std::chrono::milliseconds first_avoidance{100}, longest_avoidance{1'000};

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class RealWaitPolicy final : public WaitPolicy {
 public:
  Clock::time_point now() noexcept override { return Clock::now(); }

  Clock::time_point recent() noexcept override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return Clock::time_point(std::chrono::seconds(time.tv_sec) +
                             std::chrono::nanoseconds(time.tv_nsec));
  }

  bool rest(int idle_rounds, bool oversubscribed) noexcept override {
    const int spins = oversubscribed ? 0 : spin_rounds;
    const bool gives_way = idle_rounds >= std::min(spins, eager_rounds) && avoids_strangers();
    if (gives_way || idle_rounds >= spins + yield_rounds) {
      return false;
    }
    if (idle_rounds < spins) {
      if (idle_rounds >= eager_rounds) {
        cpu_relax();
      }
    } else {
      watched_yield();
    }
    return true;
  }

  void yield() noexcept override { sched_yield(); }

  // Shared futexes: the word lies in memory that several processes map.
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             std::chrono::nanoseconds timeout) noexcept override {
    const timespec time{0, timeout.count()};
    syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
  }

  void wake(std::atomic<std::uint32_t>& word, int) noexcept override {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

  void lock(std::mutex& mutex) noexcept override { mutex.lock(); }

  void point() noexcept override {}

 private:
  // Relaxed, all of it: nothing else is published with it, and a turn lost to a race is repeated.
  bool avoids_strangers() noexcept {
    const Clock::duration until = avoid_until_.load(std::memory_order_relaxed);
    if (until == Clock::duration::zero()) [[likely]] {
      return false;
    }
    if (Clock::now().time_since_epoch() < until) {
      return true;
    }
    avoid_until_.store(Clock::duration::zero(), std::memory_order_relaxed);
    return false;
  }

  void watched_yield() noexcept {
    const auto before = recent();
    sched_yield();
    if (recent() != before) [[unlikely]] {
      const int ticks = ticks_.load(std::memory_order_relaxed) + 1;
      ticks_.store(ticks, std::memory_order_relaxed);
      if (ticks >= strangers_ticks) {
        meet_strangers();
      }
      return;
    }
    const int calm = calm_yields_.load(std::memory_order_relaxed) + 1;
    calm_yields_.store(calm, std::memory_order_relaxed);
    if (calm >= yields_remembered) [[unlikely]] {
      calm_yields_.store(0, std::memory_order_relaxed);
      ticks_.store(0, std::memory_order_relaxed);
      avoidance_.store(first_avoidance, std::memory_order_relaxed);
    }
  }

  void meet_strangers() noexcept {
    const Clock::duration last = avoidance_.load(std::memory_order_relaxed);
    avoid_until_.store(Clock::now().time_since_epoch() + last, std::memory_order_relaxed);
    avoidance_.store(std::min<Clock::duration>(2 * last, longest_avoidance),
                     std::memory_order_relaxed);
    ticks_.store(0, std::memory_order_relaxed);
    calm_yields_.store(0, std::memory_order_relaxed);
  }

  std::atomic<Clock::duration> avoid_until_{};  ///< Since the clock's epoch; zero: no strangers.
  std::atomic<Clock::duration> avoidance_{first_avoidance};
  std::atomic<int> ticks_ = 0;        ///< Yields that took one, of the last few,
  std::atomic<int> calm_yields_ = 0;  ///< and those since that did not.
};

}  // namespace

std::unique_ptr<WaitPolicy> real_wait_policy() { return std::make_unique<RealWaitPolicy>(); }

}  // namespace sprat::comm
