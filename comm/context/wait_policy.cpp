// The machine's own wait policy.
#include "comm/context/wait_policy.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "comm/context/strangers.hpp"

namespace sprat::comm {
namespace {

// Rounds of driving that move nothing, before giving the core away, and before sleeping. A round
// takes about 50 ns; a yield a microsecond or more.
constexpr int spin_rounds = 2'000;
// The first of them follow each other at once: what is about to come is seen the sooner.
constexpr int eager_rounds = 64;
constexpr int yield_rounds = 400;

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The core's own counter. A clock lies in pages of its own, which whoever ran meanwhile has pushed
// out of the tables of pages: where ranks share cores, two looks at one cost a short call 3 %.
std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
#endif
}

// Of a yield that has taken a stranger's time slice, maybe. How fast the counter goes is not asked
// for: cores that matter count 1 to 5 thousand millions a second, and Arm's a thousand, or 24 to
// 100 millions. Whoever is suspected is timed by the clock.
#if defined(__aarch64__)
constexpr std::uint64_t suspicious_ticks = 10'000;
#else
constexpr std::uint64_t suspicious_ticks = 1'000'000;
#endif

class RealWaitPolicy final : public WaitPolicy {
 public:
  void share_cores(std::size_t ranks) noexcept override { ranks_a_core_ = ranks; }

  [[gnu::hot]] Clock::time_point now() noexcept override { return Clock::now(); }

  [[gnu::hot]] Clock::time_point recent() noexcept override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return Clock::time_point(std::chrono::seconds(time.tv_sec) +
                             std::chrono::nanoseconds(time.tv_nsec));
  }

  [[gnu::hot]] bool rest(int idle_rounds, Awaited awaited) noexcept override {
    const bool shares_core = ranks_a_core_ > 1;
    const int spins = shares_core || awaited == Awaited::wire ? 0 : spin_rounds;
    const bool is_evidence = !shares_core || awaited == Awaited::announcement;
    if (idle_rounds == 0 && is_evidence) {
      strangers_.begin_wait();
    }
    const bool gives_way = ranks_a_core_ <= Strangers::most_ranks_a_core &&
                           idle_rounds >= std::min(spins, eager_rounds) &&
                           strangers_.avoided([this] { return now(); });
    if (gives_way || idle_rounds >= spins + yield_rounds) {
      return false;
    }
    if (idle_rounds < spins) {
      if (idle_rounds >= eager_rounds) {
        cpu_relax();
      }
    } else if (!is_evidence) {
      // A peer that works on this core keeps it for as long as a stranger would. To take the one
      // for the other costs reduce_scatter of 64 MiB a sixth of its speed, and the short calls
      // that follow it a factor of twenty.
      sched_yield();
    } else {
      watched_yield();
    }
    return true;
  }

  [[gnu::hot]] void yield() noexcept override { sched_yield(); }

  // Shared futexes: the word lies in memory that several processes map.
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             std::chrono::nanoseconds timeout) noexcept override {
    const timespec time{0, timeout.count()};
    syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
  }

  void wake(std::atomic<std::uint32_t>& word, int) noexcept override {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

  // A signal ends it as a timeout does: nothing can be read then.
  void poll(std::span<pollfd> descriptors, std::chrono::nanoseconds timeout) noexcept override {
    for (pollfd& one : descriptors) {
      one.revents = 0;
    }
    const timespec time{0, timeout.count()};
    ppoll(descriptors.data(), descriptors.size(), &time, nullptr);
  }

  [[gnu::hot]] void lock(std::mutex& mutex) noexcept override { mutex.lock(); }

  [[gnu::hot]] void point() noexcept override {}

 private:
  void watched_yield() noexcept {
    if (strangers_.suspected()) [[unlikely]] {
      const auto before = now();
      sched_yield();
      const auto after = now();
      strangers_.yielded(after - before, after);
      return;
    }
    const std::uint64_t before = ticks();
    sched_yield();
    if (ticks() - before > suspicious_ticks) [[unlikely]] {
      strangers_.suspect();
    }
  }

  std::size_t ranks_a_core_ = 1;
  Strangers strangers_;
};

}  // namespace

std::unique_ptr<WaitPolicy> real_wait_policy() { return std::make_unique<RealWaitPolicy>(); }

}  // namespace sprat::comm
