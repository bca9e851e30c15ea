#include "comm/base/fork.hpp"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace sprat::comm {
namespace {

/// A number is reused after close(); the file behind it tells whether it is still the same.
struct OpenFile {
  int descriptor;
  dev_t device;
  ino_t inode;
  bool still_open() const {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && status.st_dev == device && status.st_ino == inode;
  }
};

/// Process-wide because fork() is.
struct ForkState {
  std::atomic<std::uint32_t> generation = 0;  ///< Relaxed: written where there is one thread.
  std::mutex mutex;                           ///< Guards the rest; held across fork().
  /// One for each number: an earlier one's file has been closed, by an owner that did not say so.
  std::vector<OpenFile> files;

  ForkState();
  void forget(int descriptor) noexcept {
    std::erase_if(files,
                  [descriptor](const OpenFile& file) { return file.descriptor == descriptor; });
  }
};

ForkState& state() {
  static ForkState& instance = *new ForkState;  // outlives static destructors of callers
  return instance;
}

void before_fork() { state().mutex.lock(); }

void in_parent() { state().mutex.unlock(); }

// Other threads may have held any lock when they vanished: no allocation here.
void in_child() {
  ForkState& fork = state();
  fork.generation.fetch_add(1, std::memory_order_relaxed);
  for (const OpenFile& file : fork.files) {
    if (file.still_open()) {
      close(file.descriptor);
    }
  }
  fork.files.clear();
  fork.mutex.unlock();
}

ForkState::ForkState() { pthread_atfork(before_fork, in_parent, in_child); }

}  // namespace

std::uint32_t fork_generation() noexcept {
  return state().generation.load(std::memory_order_relaxed);
}

// Under the lock from the start: a child forked between would keep its copy.
int open_here_only(const std::function<int()>& open) {
  ForkState& fork = state();
  const std::lock_guard lock(fork.mutex);
  const int descriptor = open();
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    return descriptor;
  }
  fork.forget(descriptor);
  fork.files.push_back({descriptor, status.st_dev, status.st_ino});
  return descriptor;
}

// Under the lock, so that nobody looks at the file meanwhile.
void close_and_forget(int descriptor) noexcept {
  ForkState& fork = state();
  const std::lock_guard lock(fork.mutex);
  fork.forget(descriptor);
  close(descriptor);
}

}  // namespace sprat::comm
