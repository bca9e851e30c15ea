#include "plugins/torch/native/work.hpp"

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "plugins/torch/native/callback_threads.hpp"
#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/errors.hpp"

namespace sprat::pytorch {
namespace {

std::exception_ptr as_error(const Error& error, const Operation& operation, const Notes& notes) {
  const bool differs = error.code() == ErrorCode::mismatch;
  return as_torch_error(error, differs ? compare_notes(notes, describe(operation)) : "");
}

}  // namespace

void unregister(c10d::Work& work) {
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(&work));
  }
}

std::string describe(const Operation& operation) {
  const std::string title = operation.title;
  const auto& tensors = operation.inputs.empty() ? operation.results : operation.inputs;
  const std::string name = title.substr(title.find(':') + 1);
  return tensors.empty() ? name : name + " of " + shapes_of(tensors);
}

void run_now(const Operation& operation, Observer& observer, const Observed& observed,
             const std::function<void()>& start) {
  std::exception_ptr failed;
  try {
    start();
  } catch (const Error& error) {
    failed = as_error(error, operation, observer.notes);
  } catch (...) {
    failed = std::current_exception();
  }
  observer.end(observed, failed, Observed::Clock::now());
  if (failed) {
    observer.tell_of_failure(failed);
    std::rethrow_exception(failed);
  }
  if (operation.finish) {
    operation.finish();
  }
}

Work::Work(Operation operation, sprat::Work work, std::shared_ptr<Observer> observer, Parts parts)
    : c10d::Work(observer->notes.rank, operation.type, operation.title,
                 std::optional<std::vector<at::Tensor>>(operation.inputs)),
      work_(std::move(work)),
      observer_(std::move(observer)),
      parts_(std::move(parts)),
      operation_(std::move(operation)) {}

Work::~Work() {
  if (ended_.load(std::memory_order_acquire)) {
    return;
  }
  // The operation goes on and uses its tensors until it ends, so they are kept until then. A thread
  // for callbacks frees them, as in watch(). Nobody can be told of an error any more.
  struct Rest {
    Operation operation;
    sprat::Work work;
    std::shared_ptr<Observer> observer;
    Parts parts;
    void end() {
      std::exception_ptr failed;
      try {
        work.wait();
        if (operation.finish) {
          operation.finish();
        }
      } catch (const std::exception&) {
        failed = std::current_exception();  // Sprat has logged why the job failed
      }
      for (const Observed& part : parts) {
        observer->end(part, failed, Observed::Clock::now());
      }
      if (failed) {
        observer->tell_of_failure(failed);
      }
    }
  };
  auto rest = std::make_shared<Rest>(Rest{std::move(operation_), work_, observer_, parts_});
  work_.on_done([rest] {
    CallbackThreads::of_process().post([rest = std::move(*rest)]() mutable { rest.end(); });
  });
}

void Work::complete() {
  if (ended_.load(std::memory_order_acquire)) {
    return;
  }
  std::exception_ptr failed;
  std::optional<Error> error;
  try {
    work_.wait();  // without the lock: who waits drives, so several threads may
  } catch (const Error& caught) {
    error = caught;
  }
  {
    const std::lock_guard lock(completing_);
    if (ended_.load(std::memory_order_relaxed)) {
      return;
    }
    failed = finish(error);
  }
  if (failed) {
    // Without the lock: a hook may wait for this Work.
    observer_->tell_of_failure(failed);
  }
}

std::exception_ptr Work::finish(const std::optional<Error>& error) {
  std::exception_ptr failed;
  try {
    if (error) {
      failed = as_error(*error, operation_, observer_->notes);
    } else if (operation_.finish) {
      operation_.finish();
    }
  } catch (...) {
    failed = std::current_exception();
  }
  const auto seen = done_at_.load(std::memory_order_relaxed);
  ended_at_ = seen != 0 ? Observed::Clock::time_point(Observed::Clock::duration(seen))
                        : Observed::Clock::now();
  for (const Observed& part : parts_) {
    observer_->end(part, failed, ended_at_);
  }
  std::vector<at::Tensor> gone_inputs, gone_staging;  // freed once the lock is let go
  {
    const std::lock_guard base_lock(mutex_);
    exception_ = failed;
    completed_ = true;
    gone_inputs.swap(operation_.inputs);
    gone_staging.swap(operation_.staging);
    operation_.finish = nullptr;
  }
  // Release: whoever sees it sees exception_, ended_at_ and the results.
  ended_.store(true, std::memory_order_release);
  cv_.notify_all();
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  return failed;
}

float Work::getDuration() const {
  TORCH_CHECK(parts_.front().timed, operation_.title, " of group ", observer_->notes.group,
              " was not timed; call the group's _enable_collectives_timing() before it");
  TORCH_CHECK(ended_.load(std::memory_order_acquire), operation_.title, " of group ",
              observer_->notes.group, " is not done; wait for it before you ask how long it took");
  return std::chrono::duration<float, std::milli>(ended_at_ - parts_.front().began).count();
}

std::chrono::milliseconds Work::getTimeout() const { return parts_.front().deadline.timeout; }

bool Work::isCompleted() {
  if (!ended_.load(std::memory_order_acquire)) {
    try {
      if (!work_.test()) {
        return false;
      }
    } catch (const Error&) {  // complete() meets the same error, and keeps it
    }
    complete();
  }
  return true;
}

bool Work::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr Work::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

int Work::sourceRank() const { return work_.source(); }

std::vector<at::Tensor> Work::result() { return operation_.results; }

bool Work::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout && !ended_.load(std::memory_order_acquire)) {
    // Waiting in Sprat would last until the operation's own deadline, so this waits until a
    // callback says that it is done.
    watch();
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
      C10_THROW_ERROR(DistBackendError,
                      c10::str("Wait timeout: ", describe(operation_), " of group ",
                               observer_->notes.group, " is not done after ", timeout.count(),
                               " ms; it goes on. `sprat status --explain` says who is late"));
    }
  }
  complete();
  unregister(*this);
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void Work::abort() {
  TORCH_CHECK(false, "sprat cannot abort one operation; abort the process group");
}

void Work::complete_futures() {
  complete();
  future_result_->markCompleted(c10::IValue(static_cast<std::int64_t>(
      exception_ ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS)));
  if (exception_) {
    future_->setError(exception_);
  } else {
    future_->markCompleted(c10::IValue(operation_.results));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  watch();
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() {
  watch();
  return future_result_;
}

void Work::watch() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) {
      return;
    }
    // Both futures are made at once, since the operation tells of its end only once.
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  }
  if (isCompleted()) {
    return complete_futures();
  }
  // The posted callback takes this reference with it. If a thread of Sprat's held the last one, it
  // would be the one that frees tensors.
  auto self = std::make_shared<c10::intrusive_ptr<Work>>(
      c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
  work_.on_done([self] {
    (*self)->done_at_.store(Observed::Clock::now().time_since_epoch().count(),
                            std::memory_order_relaxed);
    CallbackThreads::of_process().post([work = std::move(*self)] { work->complete_futures(); });
  });
}

bool Works::isCompleted() {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
}

bool Works::isSuccess() const {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isSuccess(); });
}

bool Works::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) {
    try {
      work->wait(timeout);
    } catch (...) {
      if (work->isCompleted()) {  // else it goes on, and others may wait for all of them
        unregister(*this);
      }
      throw;
    }
  }
  unregister(*this);
  return true;
}

}  // namespace sprat::pytorch
