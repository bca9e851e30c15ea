// Whoever brings a batch's last sample wakes whoever waits, if it is the first in line.
#include "io/loader/delivery.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "io/loader/cached_rows.hpp"

namespace sprat::io {
namespace {

/// So many batches are looked at for open rows: as many as are planned at once, and one.
constexpr std::size_t most_helped = 5;
/// To sleep and be woken costs more than the last row that another thread copies just now.
constexpr int yields_before_sleep = 16;

}  // namespace

void Delivery::announce(std::shared_ptr<BatchBuild> build) {
  const std::lock_guard lock(mutex_);
  untaken_bytes_ += build->bytes;
  builds_.push_back(std::move(build));
  // One without samples, of a rank that has none of a small batch, is ready at once.
  changed_.notify_all();
}

void Delivery::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Delivery::sample_done(const std::shared_ptr<BatchBuild>& build, std::size_t samples) {
  // The lock is taken for the last sample alone, not for each of thousands.
  // Released by every thread that has filled a sample, acquired by whoever takes the batch.
  if (build->left.fetch_sub(samples, std::memory_order_acq_rel) == samples && samples > 0) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
}

void Delivery::fail(const std::shared_ptr<BatchBuild>& build, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (build->error == nullptr) {
    build->error = std::move(error);
  }
  changed_.notify_all();
}

void Delivery::fail_all(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<BatchBuild>& build : builds_) {
    if (build->left.load(std::memory_order_acquire) > 0 && build->error == nullptr) {
      build->error = error;
    }
  }
  error_ = std::move(error);  // for the batches that will never be announced
  changed_.notify_all();
}

bool Delivery::front_is_ready() const {
  if (builds_.empty()) {
    return ended_ || error_ != nullptr;
  }
  return builds_.front()->error != nullptr ||
         builds_.front()->left.load(std::memory_order_acquire) == 0;
}

std::shared_ptr<BatchBuild> Delivery::build_to_help() const {
  const std::size_t looked_at = help_ ? std::min(most_helped, builds_.size()) : 0;
  for (std::size_t i = 0; i < looked_at; ++i) {
    if (builds_[i]->cached != nullptr && builds_[i]->cached->has_open_rows()) {
      return builds_[i];
    }
  }
  return nullptr;
}

bool Delivery::front_ends_soon() const {
  return !builds_.empty() && builds_.front()->cached != nullptr &&
         builds_.front()->cached->ends_soon();
}

/// What lies behind a batch that is not ready does not help whoever waits next, so it ends there.
void Delivery::count_ready() {
  for (; ready_ < builds_.size() && builds_[ready_]->left.load(std::memory_order_acquire) == 0;
       ++ready_) {
    ready_bytes_ += builds_[ready_]->bytes;
  }
}

bool Delivery::wait(std::unique_lock<std::mutex>& lock, Clock::time_point deadline) {
  if (front_is_ready()) {
    return true;
  }
  const Clock::time_point begin = Clock::now();
  waits_since_ = begin;
  bool ready = false, in_time = true;
  int yields = 0;
  while (in_time && !ready) {
    if (const std::shared_ptr<BatchBuild> build = build_to_help()) {
      lock.unlock();
      help_(build);
      lock.lock();
      in_time = Clock::now() < deadline;
    } else if (front_ends_soon() && yields++ < yields_before_sleep) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else {
      in_time = changed_.wait_until(lock, deadline,
                                    [&] { return front_is_ready() || build_to_help() != nullptr; });
    }
    ready = front_is_ready();
  }
  waits_since_.reset();
  waited_ += Clock::now() - begin;
  had_to_wait_ = true;
  return ready;
}

bool Delivery::wait(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return wait(lock, deadline);
}

std::optional<Delivery::Taken> Delivery::take(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!wait(lock, deadline)) {
    return std::nullopt;
  }
  // Also true of earlier tries that gave up waiting: they asked for this batch, too.
  const bool was_ready = !std::exchange(had_to_wait_, false);
  if (builds_.empty()) {
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
    return Taken{};
  }
  const std::shared_ptr<BatchBuild> build = builds_.front();
  if (build->error != nullptr) {
    std::rethrow_exception(build->error);  // and again for who asks again: no batch is left out
  }
  count_ready();  // the first is ready, so it is among them
  builds_.pop_front();
  untaken_bytes_ -= build->bytes;
  ready_bytes_ -= build->bytes;
  --ready_;
  const bool makes_room = wanted_untaken_ && untaken_bytes_ <= *wanted_untaken_;
  if (makes_room) {
    wanted_untaken_.reset();
  }
  return Taken{.batch = std::move(build->batch),
               .build = build,
               .was_ready = was_ready,
               .ready_bytes = ready_bytes_,
               .makes_room = makes_room};
}

bool Delivery::ask_for_room(std::uint64_t most_untaken) {
  const std::lock_guard lock(mutex_);
  wanted_untaken_.reset();
  if (untaken_bytes_ > most_untaken) {
    wanted_untaken_ = most_untaken;
  }
  return wanted_untaken_.has_value();
}

std::uint64_t Delivery::untaken_bytes() const {
  const std::lock_guard lock(mutex_);
  return untaken_bytes_;
}

std::size_t Delivery::untaken() const {
  const std::lock_guard lock(mutex_);
  return builds_.size();
}

bool Delivery::waited_for() const {
  const std::lock_guard lock(mutex_);
  return waits_since_.has_value();
}

// All of it with the lock: once it is ready, take() moves the batch out of the build.
std::optional<Delivery::AwaitedBatch> Delivery::awaited() const {
  const std::lock_guard lock(mutex_);
  if (!waits_since_ || builds_.empty() || front_is_ready()) {
    return std::nullopt;
  }
  const BatchBuild& build = *builds_.front();
  const std::size_t samples = build.batch->samples.size();
  return AwaitedBatch{.index = build.batch->index,
                      .last_position = build.begin + samples - (samples > 0 ? 1 : 0)};
}

std::chrono::nanoseconds Delivery::waited() const {
  const std::lock_guard lock(mutex_);
  return waited_ + (waits_since_ ? Clock::now() - *waits_since_ : std::chrono::nanoseconds(0));
}

}  // namespace sprat::io
