// Functions of others that a group calls: when an operation has ended, and before the group ends.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace sprat::pytorch {

/// c10d's hook for operations that have ended: called for one after the other, on a thread that
/// holds no lock. Any thread.
class CompletionHook final : public std::enable_shared_from_this<CompletionHook> {
 public:
  using Function = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  /// Once a group. Throws c10::Error the second time.
  void set(Function function);
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  /// One operation that wait() is to wait for. Each is told once.
  void expect();
  void tell(std::shared_ptr<c10d::WorkInfo> ended);
  /// Blocks until the hook has been called for all that was expected.
  void wait();

 private:
  void call_in_order();

  std::atomic<bool> set_ = false;  ///< Release: function_ is there.
  Function function_;              ///< Written once, before set_.
  std::mutex mutex_;               ///< Guards what follows.
  std::condition_variable done_;
  std::deque<std::shared_ptr<c10d::WorkInfo>> ended_;
  std::size_t expected_ = 0;  ///< Not yet called for.
  bool calling_ = false;      ///< A thread is in call_in_order().
};

/// Functions by number. Any thread.
template <class... Arguments>
class HookTable final {
 public:
  using Function = std::function<void(Arguments...)>;

  /// Instead of the one that had this number.
  void add(std::int64_t number, Function function) {
    const std::lock_guard lock(mutex_);
    functions_[number] = std::make_shared<const Function>(std::move(function));
    any_.store(true, std::memory_order_relaxed);
  }

  /// Throws c10::Error if there is none of this number.
  void remove(std::int64_t number) {
    std::shared_ptr<const Function>
        gone;  // freed without the lock: it may be an object of Python's
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(number);
    TORCH_CHECK(found != functions_.end(), "the process group has no hook ", number);
    gone = std::move(found->second);
    functions_.erase(found);
    any_.store(!functions_.empty(), std::memory_order_relaxed);
  }

  /// Relaxed: it saves work where there is none; who adds a hook does so before what it is for.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  /// In the order of their numbers, in this thread. What they throw is logged.
  void call(Arguments... arguments) {
    // Shared, since a copy of a function of Python's would want Python's lock while this one is
    // held.
    std::vector<std::shared_ptr<const Function>> functions;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [number, function] : functions_) {
        functions.push_back(function);
      }
    }
    for (const auto& function : functions) {
      try {
        (*function)(arguments...);
      } catch (const std::exception& error) {
        LOG(ERROR) << "sprat: a hook of a process group threw: " << error.what();
      }
    }
  }

 private:
  std::atomic<bool> any_ = false;
  std::mutex mutex_;  ///< Guards the rest.
  std::map<std::int64_t, std::shared_ptr<const Function>> functions_;
};

}  // namespace sprat::pytorch
