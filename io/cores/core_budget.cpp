// Locks are held for some instructions, and never while anything is waited for, so that a reduction
// may tell of itself.
#include "io/cores/core_budget.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "comm/base/log.hpp"

namespace sprat::io {
namespace {

/// Nice enough that whoever computes gets nine tenths of a core that both want, and not so nice
/// that decoding stands still.
constexpr int nice_of_who_gives_way = 10;

/// Of a thread; 0 if it has ended.
double cpu_seconds_of(clockid_t clock) {
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) {
    return 0;
  }
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

CoreBudget::CoreBudget(const CorePlan& plan)
    : plan_(plan),
      decoders_(plan.decode_threads),
      governor_(plan.decode_threads),
      observed_(std::chrono::steady_clock::now()) {}

CoreBudget::Member::Member(CoreBudget& budget, Role role)
    : budget_(budget), role_(role), number_(budget.enter(*this)) {}
CoreBudget::Member::~Member() { budget_.leave(*this); }

int CoreBudget::enter(Member& member) {
  MemberClock clock{.role = member.role_};
  ::pthread_getcpuclockid(::pthread_self(), &clock.clock);
  clock.last = cpu_seconds_of(clock.clock);
  const std::lock_guard lock(mutex_);
  members_.emplace(&member, clock);
  int number = 0;
  if (member.role_ == Role::decodes) {
    while (decoding_members_.contains(number)) {
      ++number;
    }
    decoding_members_.emplace(number, &member);
  }
  return number;
}

void CoreBudget::leave(Member& member) noexcept {
  const std::lock_guard lock(mutex_);
  add_cpu_time(members_.at(&member));  // its clock ends with the thread
  members_.erase(&member);
  if (member.role_ == Role::decodes) {
    decoding_members_.erase(member.number_);
  }
}

void CoreBudget::add_cpu_time(MemberClock& member) {
  const double now = std::max(member.last, cpu_seconds_of(member.clock));
  (member.role == Role::decodes ? use_.decode_seconds : use_.read_seconds) += now - member.last;
  member.last = now;
}

bool CoreBudget::Member::may_decode() {
  const bool give_way = budget_.give_way_.load(std::memory_order_relaxed);
  if (give_way != gives_way_) {
    gives_way_ = give_way;
    const auto thread = static_cast<id_t>(::gettid());
    // To take a low priority is anybody's right, to take it back is not: then it stays low.
    if (::setpriority(PRIO_PROCESS, thread, give_way ? nice_of_who_gives_way : 0) != 0) {
      log().debug("a thread that decodes keeps its priority: errno {}", errno);
    }
  }
  return budget_.may_decode(number_, std::chrono::steady_clock::now());
}

bool CoreBudget::may_decode(int number, Time now) {
  // The first one goes on in any case but for the moment of a probe, so a loader always gets on.
  if (number > 0 && number >= decoders_.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  return !probe_.pauses(now, !slowdown_.knows_quiet());
}

void CoreBudget::change_busy(int by) noexcept {
  const Time now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  decoding_.change(now, by);
}

void CoreBudget::note_reduction(std::chrono::nanoseconds took, std::size_t bytes) noexcept {
  const Time now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  const double busy = decoding_.mean(now - took, now);
  // Threads that are not allowed to decode any more leave fewer that can be busy.
  const int threads = std::max(1, decoders_.load(std::memory_order_relaxed));
  slowdown_.add(took, bytes, busy, threads);
  use_.reduced_bytes += bytes;
  use_.reduced_in_seconds += std::chrono::duration<double>(took).count();
}

CoreUse CoreBudget::observe(double consumer_wait) {
  const Time now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (auto& [member, clock] : members_) {
    add_cpu_time(clock);
  }
  CoreUse use = use_;
  use_ = {};
  use.seconds = std::chrono::duration<double>(now - observed_).count();
  observed_ = now;
  use.budget = plan_.cores;
  use.slowdown = slowdown_.slowdown();
  // Reductions that overlap count twice in the sum, but take no more than all of the time.
  use.decision =
      governor_.decide({.seconds = use.seconds,
                        .reducing_seconds = std::min(use.seconds, use.reduced_in_seconds),
                        .consumer_wait = consumer_wait,
                        .slowdown = use.slowdown});
  decoders_.store(use.decision.decoders, std::memory_order_relaxed);
  give_way_.store(use.decision.give_way, std::memory_order_relaxed);
  return use;
}

}  // namespace sprat::io
