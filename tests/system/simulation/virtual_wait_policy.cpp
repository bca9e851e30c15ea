// A rank's wait policy in the simulation, and the watch for lost doorbells.
#include <algorithm>
#include <utility>

#include "tests/system/simulation/simulator.hpp"

namespace sprat::simulation {
namespace {

using namespace std::chrono_literals;

// Shorter sleeps poll a wire, which rings no bell.
constexpr nanoseconds least_watched = 1ms;
// A machine may let its sleepers oversleep; here it saves turns.
constexpr nanoseconds longest_nap = 4ms;

}  // namespace

VirtualWaitPolicy::VirtualWaitPolicy(Simulator& simulator, int rank, std::function<bool()> news)
    : simulator_(simulator),
      rank_(rank),
      most_rests_(simulator.random().between(1, 3)),
      news_(std::move(news)) {}

Time VirtualWaitPolicy::now() noexcept {
  simulator_.point();
  return simulator_.now();
}

Time VirtualWaitPolicy::recent() noexcept { return now(); }

bool VirtualWaitPolicy::rest(int idle_rounds, comm::Awaited) noexcept {
  if (idle_rounds == 0) {
    naps_ = 0;
  }
  if (overslept_) {
    look_back(idle_rounds == 0);
  }
  if (idle_rounds >= most_rests_) {
    return false;
  }
  simulator_.yield();
  return true;
}

void VirtualWaitPolicy::yield() noexcept { simulator_.yield(); }

// A sleeper that nobody woke while all others slept looks round once, undivided. If it then finds
// something to do, that was published and no bell rung for it.
void VirtualWaitPolicy::sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                              nanoseconds timeout) noexcept {
  if (overslept_) {
    look_back(false);
  }
  simulator_.point();
  if (word.load() == expected) {
    simulator_.trace(rank_, "sleeps");
    nap(timeout, [this](nanoseconds longest) { return simulator_.sleep(longest); });
  }
}

void VirtualWaitPolicy::poll(std::span<pollfd> descriptors, nanoseconds timeout) noexcept {
  if (overslept_) {
    look_back(false);
  }
  const auto readable = [this, &pipe = descriptors.front()] {
    return ::poll(&pipe, 1, 0) > 0 || news_();
  };
  simulator_.point();
  if (!readable()) {
    simulator_.trace(rank_, "polls");
    nap(timeout, [&](nanoseconds longest) { return simulator_.poll(longest, readable); });
  }
}

void VirtualWaitPolicy::nap(nanoseconds timeout, const std::function<bool(nanoseconds)>& sleeps) {
  const bool watched = timeout >= least_watched;
  const nanoseconds longer = std::min(timeout * (1 << std::min(naps_, 10)), longest_nap);
  if (sleeps(std::max(longer, timeout))) {
    simulator_.trace(rank_, "is woken");
    naps_ = 0;
    return;
  }
  ++naps_;
  if (watched && simulator_.slept_out() && !simulator_.sleepers_excused()) {
    overslept_ = true;
    ++simulator_.undivided();
  }
}

void VirtualWaitPolicy::look_back(bool found) {
  overslept_ = false;
  --simulator_.undivided();
  if (found && !simulator_.sleepers_excused()) {
    simulator_.violation(
        "rank " + std::to_string(rank_) +
        " slept its time out though what it waited for was there: a lost doorbell");
  }
}

void VirtualWaitPolicy::wake(std::atomic<std::uint32_t>&, int owner) noexcept {
  simulator_.trace(rank_, "rings rank " + std::to_string(owner));
  simulator_.wake_rank(owner);
  simulator_.point();
}

void VirtualWaitPolicy::lock(std::mutex& mutex) noexcept {
  const auto is_free = [&mutex] {
    const bool taken = mutex.try_lock();
    if (taken) {
      mutex.unlock();
    }
    return taken;
  };
  simulator_.point();
  while (!mutex.try_lock()) {
    simulator_.wait_for(is_free);
  }
}

void VirtualWaitPolicy::point() noexcept { simulator_.point(); }

}  // namespace sprat::simulation
