#include "plugins/torch/native/notices.hpp"

#include <pthread.h>

#include <thread>

namespace sprat::pytorch {

Notices& Notices::of_process() {
  // Never destroyed: its threads may be in Python when the process ends. A child of fork() has
  // none of them and starts afresh.
  static Notices* notices = new Notices;
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { notices = new Notices; });
  static_cast<void>(registered);
  return *notices;
}

void Notices::post(std::function<void()> notice) {
  const std::lock_guard lock(mutex_);
  notices_.push_back(std::move(notice));
  if (idle_ >= notices_.size()) {
    posted_.notify_one();
  } else {
    std::thread([this] { run(); }).detach();
  }
}

void Notices::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (notices_.empty()) {
      ++idle_;
      posted_.wait(lock);
      --idle_;
    }
    std::function<void()> notice = std::move(notices_.front());
    notices_.pop_front();
    lock.unlock();
    notice();
    notice = nullptr;  // what it held is freed without the lock
    lock.lock();
  }
}

}  // namespace sprat::pytorch
