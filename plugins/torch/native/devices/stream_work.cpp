#include "plugins/torch/native/devices/stream_work.hpp"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "plugins/torch/native/callback_threads.hpp"
#include "plugins/torch/native/devices/registry.hpp"
#include "plugins/torch/native/errors.hpp"

namespace sprat::pytorch {

StreamWork::StreamWork(Operation operation, const OpenLane& lane,
                       std::shared_ptr<Observer> observer, pytorch::Work::Parts parts)
    : c10d::Work(observer->notes.rank, operation.type, operation.title,
                 std::optional<std::vector<at::Tensor>>(operation.inputs)),
      device_(lane.device),
      futures_(lane.futures),
      observer_(std::move(observer)),
      parts_(std::move(parts)),
      title_(operation.title),
      results_(operation.results),
      future_result_(c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get())),
      operation_(std::move(operation)) {}

void StreamWork::taken(sprat::DeviceWork work, std::shared_ptr<Started> started) {
  started_ = std::move(started);
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
  }
  // This keeps itself, and with it the tensors, until the lane is done. A thread for callbacks lets
  // go of them: to free a tensor may take Python's lock, which the lane's thread must not wait for.
  auto self = std::make_shared<c10::intrusive_ptr<StreamWork>>(
      c10::intrusive_ptr<StreamWork>::unsafe_reclaim_from_nonowning(this));
  work.on_done(
      [self] { CallbackThreads::of_process().post([work = std::move(*self)] { work->ended(); }); });
}

void StreamWork::ended() {
  const std::optional<Error> failure = handle().failure();
  const std::exception_ptr failed = failure ? as_torch_error(*failure) : nullptr;
  const auto now = Observed::Clock::now();
  for (const Observed& part : parts_) {
    observer_->end(part, failed, now);
  }
  if (failed) {
    observer_->tell_of_failure(failed);
  }
  operation_ = {};
  sprat::DeviceWork gone;  // let go of without the lock
  {
    const std::lock_guard lock(mutex_);
    ended_at_ = now;
    exception_ = failed;
    completed_ = true;
    gone = std::exchange(work_, sprat::DeviceWork());
  }
  cv_.notify_all();
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  // Last: whoever has waited for it finds the operation in the profile.
  future_result_->markCompleted(c10::IValue(static_cast<std::int64_t>(
      failed ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS)));
}

sprat::DeviceWork StreamWork::handle() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

std::exception_ptr StreamWork::exception() const {
  // The handle first: once it is let go of, exception_ is there.
  const std::optional<Error> failure = handle().failure();
  if (failure) {
    return as_torch_error(*failure);
  }
  const std::lock_guard lock(mutex_);
  return exception_;
}

bool StreamWork::isSuccess() const { return handle().done() && !exception(); }

int StreamWork::sourceRank() const {
  guard([&] { handle().synchronize(); });
  return started_->get().source();
}

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
      C10_THROW_ERROR(DistBackendError,
                      c10::str("Wait timeout: ", title_, " of group ", observer_->notes.group,
                               " is not done after ", timeout.count(), " ms; it goes on"));
    }
  }
  unregister(*this);  // before what throws if the operation has failed
  guard([&] { handle().wait(current_stream(device_)); });
  if (const std::exception_ptr failed = exception()) {
    std::rethrow_exception(failed);
  }
  return true;
}

void StreamWork::abort() {
  TORCH_CHECK(false, "sprat cannot abort one operation; abort the process group");
}

c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  sprat::DeviceWork work = handle();
  const std::exception_ptr failed = exception();
  const std::lock_guard lock(mutex_);
  if (future_) {
    return future_;
  }
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(),
                                                     std::vector<c10::Device>{device_});
  try {
    if (failed) {
      std::rethrow_exception(failed);
    }
    guard([&] { work.wait(futures_->get()); });
  } catch (...) {
    future_->setError(std::current_exception());
    return future_;
  }
  // The future records the current stream, and whoever takes its value waits for that.
  const c10::StreamGuard here(as_torch_stream(device_, futures_->get()));
  future_->markCompleted(c10::IValue(results_));
  return future_;
}

float StreamWork::getDuration() const {
  TORCH_CHECK(parts_.front().timed, title_, " of group ", observer_->notes.group,
              " was not timed; call the group's _enable_collectives_timing() before it");
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(completed_, title_, " of group ", observer_->notes.group,
              " is not done; wait for it before you ask how long it took");
  return std::chrono::duration<float, std::milli>(ended_at_ - parts_.front().began).count();
}

std::chrono::milliseconds StreamWork::getTimeout() const { return parts_.front().deadline.timeout; }

}  // namespace sprat::pytorch
