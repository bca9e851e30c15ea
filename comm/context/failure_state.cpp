#include "comm/context/failure_state.hpp"

#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// A failed rank's last operations are a small file: if that takes longer, its file system hangs.
constexpr auto record_patience = 5s;

}  // namespace

FailureState::FailureState(WaitPolicy& wait_policy, Bells& bells, const Setup& options)
    : bells_(bells),
      scopes_(wait_policy),
      size_(options.size),
      record_may_hang_(options.record_may_hang),
      departed_(std::make_unique<std::atomic<bool>[]>(options.size)),
      lost_(std::make_unique<std::atomic<bool>[]>(options.size)) {}

FailureState::~FailureState() {
  if (leave_thread_.joinable()) {
    leave_thread_.join();
  }
  delete first_.load(std::memory_order_acquire);
}

// Communicators first: who waits in one looks at its own failure alone, and may throw from then on.
// Whoever loses the race finds a job of which all communicators have failed.
bool FailureState::set(const Error& error) noexcept {
  if (!scopes_.fail_all(error)) {
    return false;
  }
  first_.store(new Error(error), std::memory_order_release);
  bells_.wake_self();
  return true;
}

bool FailureState::set(std::uint64_t domain, const Error& error) noexcept {
  const bool any = scopes_.fail(domain, error);
  if (any) {
    bells_.wake_self();
  }
  return any;
}

std::vector<std::uint64_t> FailureState::set_lost(int rank, const Error& error) {
  std::vector<std::uint64_t> failed = scopes_.fail_those_with(rank, error);
  if (!failed.empty()) {
    bells_.wake_self();
  }
  return failed;
}

// The reader's loads of the peer's memory come before this load, the peer's store before its caller
// can write there again.
[[gnu::hot]] bool FailureState::is_shown(const std::atomic<std::uint32_t>& shown) noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  return shown.load(std::memory_order_acquire) != 0;
}

void FailureState::on_failure(std::function<void(const std::string&)> leave) {
  {
    std::lock_guard lock(leave_mutex_);
    leave_ = std::move(leave);
  }
  leave_record();
}

// Only what writes a file may hang, and only that is worth a thread.
void FailureState::start_record(const std::string& cause) noexcept {
  {
    std::lock_guard lock(leave_mutex_);
    if (cause_) {
      return;  // of an earlier failure
    }
    cause_ = cause;
  }
  if (!record_may_hang_) {
    leave_record();
    return;
  }
  try {
    std::lock_guard lock(leave_mutex_);
    leave_thread_ = std::thread([this] { leave_record(); });
  } catch (const std::system_error&) {  // no threads are left
    leave_record();
  }
}

void FailureState::leave_record() noexcept {
  std::function<void(const std::string&)> leave;
  {
    std::lock_guard lock(leave_mutex_);
    if (!cause_ || !leave_) {
      return;
    }
    leave = std::exchange(leave_, nullptr);
    leaving_ = true;
  }
  leave(*cause_);  // it is set once
  {
    std::lock_guard lock(leave_mutex_);
    leaving_ = false;
  }
  left_.notify_all();
}

void FailureState::await_record() noexcept {
  if (!record_may_hang_) {
    leave_record();  // unless its thread has done so
    return;
  }
  std::unique_lock lock(leave_mutex_);
  left_.wait_for(lock, record_patience, [this] { return !cause_ || (!leave_ && !leaving_); });
}

void FailureState::note_departed(int rank) { note_end(departed_[rank], rank); }

void FailureState::note_lost(int rank) { note_end(lost_[rank], rank); }

// Under the lock: a watcher that begins meanwhile finds the rank has ended, or is told, and one
// that is gone is not told any more.
void FailureState::note_end(std::atomic<bool>& ended, int rank) {
  std::lock_guard lock(end_mutex_);
  ended.store(true, std::memory_order_release);
  for (const auto& told : end_watchers_) {
    told(rank);
  }
}

std::shared_ptr<void> FailureState::watch_ends(std::function<void(int)> told) {
  std::lock_guard lock(end_mutex_);
  for (int rank = 0; rank < size_; ++rank) {
    if (lost(rank) || departed(rank)) {
      told(rank);
    }
  }
  const auto place = end_watchers_.insert(end_watchers_.end(), std::move(told));
  return {static_cast<void*>(nullptr), [this, place](void*) {
            std::lock_guard ending(end_mutex_);
            end_watchers_.erase(place);
          }};
}

// Threads may wait in several communicators at the same time, each late for other reasons.
Lateness FailureState::lateness(std::uint64_t communicator, std::uint64_t sequence) {
  std::lock_guard lock(verdict_mutex_);
  const auto found = verdicts_.find(communicator);
  const bool same = found != verdicts_.end() && found->second.sequence == sequence;
  return same ? found->second.lateness : Lateness{};
}

// A verdict may come after the communicator that it is about has gone, and nobody forgets it then.
void FailureState::note_lateness(std::uint64_t communicator, std::uint64_t sequence,
                                 Lateness lateness) {
  constexpr std::size_t most_verdicts = 4096;
  std::lock_guard lock(verdict_mutex_);
  if (verdicts_.size() >= most_verdicts && !verdicts_.contains(communicator)) {
    verdicts_.erase(verdicts_.begin());
  }
  verdicts_.insert_or_assign(communicator, Verdict{sequence, std::move(lateness)});
}

void FailureState::forget_lateness(std::uint64_t communicator) noexcept {
  std::lock_guard lock(verdict_mutex_);
  verdicts_.erase(communicator);
}

}  // namespace sprat::comm
