// What a context does when its job fails: it shows that to peers, tells the coordinator, and leaves
// a record.
#include <new>
#include <system_error>

#include "comm/base/check.hpp"
#include "comm/context/context.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// A failed rank's last operations are a small file: if that takes longer, its file system hangs.
constexpr auto record_patience = 5s;

}  // namespace

void Context::cannot_join(Rendezvous& rendezvous, std::string_view why) noexcept {
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = rendezvous.rank();
  message.code = static_cast<int>(ErrorCode::lost_peer);
  try {
    message.text = text("rank ", message.rank, " cannot join: ", why);
  } catch (const std::bad_alloc&) {
    message.text.clear();  // they hear at least who it is
  }
  rendezvous.tell(std::move(message));
}

// The reader's loads of the peer's memory come before this load, the peer's store before its caller
// can write there again.
bool Context::peer_failed(int rank) const noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  return memory_.header(rank)->failed.load(std::memory_order_acquire) != 0;
}

// A waiter that sees failure_ throws, and its caller may write to its buffers: by then peers must
// be able to see that what they read there is not good any more. So header.failed comes first. It
// is never taken back: who loses the race below finds a job that has failed as well. A sibling may
// fail this one while it still joins, so nothing that joining brings is used.
bool Context::set_failure(const Error& error) noexcept {
  memory_.header().failed.store(1, std::memory_order_seq_cst);
  wait_policy_->point();
  const Error* none = nullptr;
  const auto* first = new Error(error);
  if (!failure_.compare_exchange_strong(none, first, std::memory_order_acq_rel)) {
    delete first;
    return false;
  }
  bells_.wake_self();
  return true;
}

void Context::on_failure(std::function<void()> leave) {
  {
    std::lock_guard lock(leave_mutex_);
    leave_ = std::move(leave);
  }
  if (failure() != nullptr) {
    leave_record();
  }
}

// Only what writes a file may hang, and only that is worth a thread.
void Context::start_record() noexcept {
  if (config_.flight_recorder.empty()) {
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

void Context::leave_record() noexcept {
  std::function<void()> leave;
  {
    std::lock_guard lock(leave_mutex_);
    if (failure() == nullptr || !leave_) {
      return;
    }
    leave = std::exchange(leave_, nullptr);
    leaving_ = true;
  }
  status_->fail(failure()->what());
  leave();
  {
    std::lock_guard lock(leave_mutex_);
    leaving_ = false;
  }
  left_.notify_all();
}

void Context::await_record() noexcept {
  if (config_.flight_recorder.empty()) {
    leave_record();  // unless its thread has done so
    return;
  }
  std::unique_lock lock(leave_mutex_);
  left_.wait_for(lock, record_patience,
                 [this] { return failure() == nullptr || (!leave_ && !leaving_); });
}

void Context::fail(const Error& error) noexcept {
  if (failure() != nullptr || !set_failure(error)) {
    return;
  }
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = error.rank();
  message.code = static_cast<int>(error.code());
  message.text = error.what();
  rendezvous_->tell(std::move(message));
  start_record();
}

void Context::quiesce() {
  if (failure() == nullptr) {
    return;  // one operation failed, such as a message whose communicator is gone, and not the job
  }
  for (Context* sibling : siblings_) {
    if (sibling != this) {
      if (sibling->set_failure(*failure())) {
        sibling->start_record();
      }
      // Whoever drives the sibling sees the failure before its next step.
      const auto token = sibling->take_token();
    }
  }
}

void Context::report_stall(std::uint64_t communicator, std::uint64_t sequence, Blob signature) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::stalled;
  message.rank = rank_;
  message.comm = communicator;
  message.sequence = sequence;
  message.payload = std::move(signature);
  rendezvous_->tell(std::move(message));
}

Lateness Context::lateness(std::uint64_t communicator, std::uint64_t sequence) {
  std::lock_guard lock(verdict_mutex_);
  const bool same = verdict_communicator_ == communicator && verdict_sequence_ == sequence;
  return same ? verdict_lateness_ : Lateness{};
}

}  // namespace sprat::comm
