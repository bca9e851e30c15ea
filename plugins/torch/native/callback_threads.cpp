#include "plugins/torch/native/callback_threads.hpp"

#include <pthread.h>

#include <thread>

namespace sprat::pytorch {

CallbackThreads& CallbackThreads::of_process() {
  // Never destroyed, because its threads may be in Python when the process ends. A child of fork()
  // has none of these threads, and a lock that one of them may have held: it starts with a new
  // object.
  static CallbackThreads* callback_threads = new CallbackThreads;
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { callback_threads = new CallbackThreads; });
  static_cast<void>(registered);
  return *callback_threads;
}

void CallbackThreads::post(std::function<void()> notice) {
  const std::lock_guard lock(mutex_);
  callback_threads_.push_back(std::move(notice));
  // A callback may itself wait for another future. So none waits behind one that runs: if not
  // enough threads are idle, one more is started.
  if (idle_ >= callback_threads_.size()) {
    posted_.notify_one();
  } else {
    std::thread([this] { run(); }).detach();
  }
}

void CallbackThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (callback_threads_.empty()) {
      ++idle_;
      posted_.wait(lock);
      --idle_;
    }
    std::function<void()> notice = std::move(callback_threads_.front());
    callback_threads_.pop_front();
    lock.unlock();
    notice();
    notice = nullptr;  // what it held is freed without the lock
    lock.lock();
  }
}

}  // namespace sprat::pytorch
