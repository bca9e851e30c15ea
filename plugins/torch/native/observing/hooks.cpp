#include "plugins/torch/native/observing/hooks.hpp"

#include "plugins/torch/native/callback_threads.hpp"

namespace sprat::pytorch {

void CompletionHook::set(Function function) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!is_set(), "the process group has an onCompletion hook already; it takes one");
  function_ = std::move(function);
  set_.store(true, std::memory_order_release);
}

void CompletionHook::expect() {
  const std::lock_guard lock(mutex_);
  ++expected_;
}

void CompletionHook::tell(std::shared_ptr<c10d::WorkInfo> ended) {
  {
    const std::lock_guard lock(mutex_);
    ended_.push_back(std::move(ended));
    if (std::exchange(calling_, true)) {
      return;  // the thread that calls comes to it
    }
  }
  // Not in the caller's thread: it may be one that another rank waits for, and the hook may wait
  // for Python's lock.
  CallbackThreads::of_process().post([self = shared_from_this()] { self->call_in_order(); });
}

void CompletionHook::call_in_order() {
  std::unique_lock lock(mutex_);
  while (!ended_.empty()) {
    const std::shared_ptr<c10d::WorkInfo> next = std::move(ended_.front());
    ended_.pop_front();
    lock.unlock();
    try {
      function_(next);
    } catch (const std::exception& error) {
      LOG(ERROR) << "sprat: an onCompletion hook threw: " << error.what();
    }
    lock.lock();
    --expected_;
  }
  calling_ = false;
  done_.notify_all();
}

void CompletionHook::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return expected_ == 0; });
}

}  // namespace sprat::pytorch
