// Threads that tell Python of what Sprat has done.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace sprat::pytorch {

/// Runs what is posted, each on a thread that holds no lock. As many threads as are needed for none
/// to wait behind another: a future's callback may itself wait for a future, as DDP's PowerSGD
/// does. They end with the process.
class CallbackThreads final {
 public:
  static CallbackThreads& of_process();
  /// Any thread; never blocks for long, throws nothing but for want of memory.
  void post(std::function<void()> notice);

 private:
  void run();

  std::mutex mutex_;  ///< Guards the rest.
  std::condition_variable posted_;
  std::deque<std::function<void()>> callback_threads_;
  std::size_t idle_ = 0;  ///< Threads that wait for something to run.
};

}  // namespace sprat::pytorch
