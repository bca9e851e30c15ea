#include "comm/context/bells.hpp"

#include <algorithm>
#include <utility>

#include "comm/context/fences.hpp"

namespace sprat::comm {

void Bells::connect(const std::vector<Bell>& bells, bool light) {
  for (const Bell& bell : bells) {
    headers_.push_back(bell.header);
    pids_.push_back(bell.pid);
  }
  pipes_.resize(bells.size());
  const auto reached =
      std::ranges::count_if(headers_, [](auto* header) { return header != nullptr; });
  light_ = light && reached > 1;  // alone, nobody rings who would have to be interrupted
}

void Bells::allow_polling(std::span<const int> descriptors) {
  pipe_ = WakePipe::open();
  if (!pipe_) {
    return;
  }
  polled_.push_back({pipe_->descriptor(), POLLIN, 0});
  for (const int descriptor : descriptors) {
    polled_.push_back({descriptor, POLLIN, 0});
  }
  // Peers read these only after they have seen `polling`, which comes later.
  const WakePipe::Name name = pipe_->name();
  mine_.pipe_descriptor.store(name.descriptor, std::memory_order_relaxed);
  mine_.pipe_inode.store(name.inode, std::memory_order_relaxed);
}

bool Bells::can_poll() const {
  return pipe_ && mine_.pipe_fails.load(std::memory_order_relaxed) == 0;
}

// Sequentially consistent with poll(): either this sees `polling`, or that sees the bell rung.
[[gnu::hot]] void Bells::wake(ControlHeader& header, int rank) {
  header.bell.fetch_add(1, std::memory_order_seq_cst);
  wait_policy_.wake(header.bell, rank);
  if (header.polling.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
    end_poll(header, rank);
  }
}

// Of several that ring, one writes. If it cannot, the rank oversleeps this once, and polls no more.
void Bells::end_poll(ControlHeader& header, int rank) {
  if (header.polling.exchange(0, std::memory_order_acquire) == 0) {
    return;
  }
  if (rank == rank_) {
    if (pipe_) {  // a peer can write anything to `polling`
      pipe_->write();
    }
  } else if (!write_to_pipe(header, rank)) {
    header.pipe_fails.store(1, std::memory_order_relaxed);
  }
}

bool Bells::write_to_pipe(ControlHeader& header, int rank) {
  const std::lock_guard lock(pipes_mutex_);
  std::unique_ptr<WakePipeWriter>& pipe = pipes_[rank];
  if (!pipe) {
    pipe =
        WakePipeWriter::open({.pid = pids_[rank],
                              .descriptor = header.pipe_descriptor.load(std::memory_order_relaxed),
                              .inode = header.pipe_inode.load(std::memory_order_relaxed)});
  }
  if (pipe) {
    pipe->write();
  }
  return pipe != nullptr;
}

[[gnu::hot]] void Bells::ring(std::span<const int> local_peers) {
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

[[gnu::hot]] void Bells::ring_self() {
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

// A ring between listen() and here changed the bell and saw no `polling`; a later one sees it. Who
// took `polling` back may write as late as it likes: that byte ends the next poll too soon, once.
void Bells::Sleeper::poll(std::chrono::nanoseconds longest) {
  ControlHeader& mine = bells_.mine_;
  mine.polling.store(1, std::memory_order_seq_cst);
  if (mine.bell.load(std::memory_order_seq_cst) == heard_) {
    bells_.wait_policy_.poll(bells_.polled_, longest);
    if (bells_.polled_.front().revents != 0) {
      bells_.pipe_->drain();
    }
  }
  mine.polling.store(0, std::memory_order_relaxed);
}

}  // namespace sprat::comm
