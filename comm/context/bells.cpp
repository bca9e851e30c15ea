#include "comm/context/bells.hpp"

#include <algorithm>
#include <utility>

#include "comm/context/fences.hpp"

namespace sprat::comm {

void Bells::connect(std::vector<ControlHeader*> headers, bool light) {
  headers_ = std::move(headers);
  const auto reached =
      std::ranges::count_if(headers_, [](auto* header) { return header != nullptr; });
  light_ = light && reached > 1;  // alone, nobody rings who would have to be interrupted
}

void Bells::wake(ControlHeader& header, int rank) {
  header.bell.fetch_add(1, std::memory_order_release);
  wait_policy_.wake(header.bell, rank);
}

void Bells::ring(std::span<const int> local_peers) {
  wait_policy_.point();
  if (light_) {
    light_fence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  for (const int peer : local_peers) {
    ControlHeader& theirs = *headers_[peer];
    if (theirs.sleepers.load(std::memory_order_relaxed) > 0) [[unlikely]] {
      wake(theirs, peer);
    }
  }
}

void Bells::ring_self() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (mine_.sleepers.load(std::memory_order_relaxed) > 0) {
    wake_self();
  }
}

void Bells::wake_self() { wake(mine_, rank_); }

// A publisher writes, then looks for sleepers; a sleeper announces itself, then looks for what was
// written. Both with a fence between, so at least one of them sees the other. The sleeper's
// interrupts all who work on this machine, so it is given once for many sleeps: as long as
// `sleepers` is not taken back, every publisher sees it.
Bells::Sleeper::Sleeper(Bells& bells) : bells_(bells) {
  bells_.mine_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bells_.wait_policy_.point();
  if (bells_.light_) {
    heavy_fence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

Bells::Sleeper::~Sleeper() { bells_.mine_.sleepers.fetch_sub(1, std::memory_order_relaxed); }

void Bells::Sleeper::listen() { heard_ = bells_.mine_.bell.load(std::memory_order_acquire); }

void Bells::Sleeper::sleep(std::chrono::nanoseconds longest) {
  bells_.wait_policy_.sleep(bells_.mine_.bell, heard_, longest);
}

}  // namespace sprat::comm
