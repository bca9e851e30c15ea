#include "comm/context/failure_state.hpp"

#include <chrono>
#include <system_error>
#include <utility>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// A failed rank's last operations are a small file: if that takes longer, its file system hangs.
constexpr auto record_patience = 5s;

}  // namespace

FailureState::FailureState(WaitPolicy& wait_policy, Bells& bells, const Setup& options)
    : wait_policy_(wait_policy),
      bells_(bells),
      header_(options.header),
      record_may_hang_(options.record_may_hang),
      departed_(std::make_unique<std::atomic<bool>[]>(options.size)),
      lost_(std::make_unique<std::atomic<bool>[]>(options.size)) {}

FailureState::~FailureState() {
  if (leave_thread_.joinable()) {
    leave_thread_.join();
  }
  delete first_.load(std::memory_order_acquire);
}

// A waiter that sees first_ throws, and its caller may write to its buffers: by then peers must be
// able to see that what they read there is not good any more. So header_.failed comes first. It is
// never taken back: who loses the race below finds a job that has failed as well.
bool FailureState::set(const Error& error) noexcept {
  header_.failed.store(1, std::memory_order_seq_cst);
  wait_policy_.point();
  const Error* none = nullptr;
  const auto* first = new Error(error);
  if (!first_.compare_exchange_strong(none, first, std::memory_order_acq_rel)) {
    delete first;
    return false;
  }
  bells_.wake_self();
  return true;
}

// The reader's loads of the peer's memory come before this load, the peer's store before its caller
// can write there again.
bool FailureState::shown_by(const ControlHeader& header) noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  return header.failed.load(std::memory_order_acquire) != 0;
}

void FailureState::on_failure(std::function<void()> leave) {
  {
    std::lock_guard lock(leave_mutex_);
    leave_ = std::move(leave);
  }
  if (first() != nullptr) {
    leave_record();
  }
}

// Only what writes a file may hang, and only that is worth a thread.
void FailureState::start_record() noexcept {
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
  std::function<void()> leave;
  {
    std::lock_guard lock(leave_mutex_);
    if (first() == nullptr || !leave_) {
      return;
    }
    leave = std::exchange(leave_, nullptr);
    leaving_ = true;
  }
  leave();
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
  left_.wait_for(lock, record_patience,
                 [this] { return first() == nullptr || (!leave_ && !leaving_); });
}

Lateness FailureState::lateness(std::uint64_t communicator, std::uint64_t sequence) {
  std::lock_guard lock(verdict_mutex_);
  const bool same = verdict_communicator_ == communicator && verdict_sequence_ == sequence;
  return same ? verdict_ : Lateness{};
}

void FailureState::note_lateness(std::uint64_t communicator, std::uint64_t sequence,
                                 Lateness lateness) {
  std::lock_guard lock(verdict_mutex_);
  verdict_communicator_ = communicator;
  verdict_sequence_ = sequence;
  verdict_ = std::move(lateness);
}

}  // namespace sprat::comm
