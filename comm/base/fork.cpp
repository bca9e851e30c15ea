#include "comm/base/fork.hpp"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace sprat::comm {
namespace {

/// The number of a descriptor is reused after close(). Device and inode tell whether it still means
/// the file that was opened.
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
  /// At most one for each number, which bounds the list: a second entry of a number would mean that
  /// the owner of the first one has closed it without saying so.
  std::vector<OpenFile> files;

  ForkState();
  /// A descriptor that is none is left out, and keeps the errno of who could not open it.
  void note(int descriptor) {
    struct stat status {};
    if (descriptor < 0 || fstat(descriptor, &status) != 0) {
      return;
    }
    forget(descriptor);
    files.push_back({descriptor, status.st_dev, status.st_ino});
  }
  void forget(int descriptor) noexcept {
    std::erase_if(files,
                  [descriptor](const OpenFile& file) { return file.descriptor == descriptor; });
  }
};

[[gnu::hot]] ForkState& state() {
  static ForkState& instance = *new ForkState;  // outlives static destructors of callers
  return instance;
}

void before_fork() { state().mutex.lock(); }

void in_parent() { state().mutex.unlock(); }

// Runs in the child of fork(). Another thread of the parent may have held the allocator's lock at
// that moment and is gone, so nothing here allocates.
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

[[gnu::hot]] std::uint32_t fork_generation() noexcept {
  return state().generation.load(std::memory_order_relaxed);
}

// The lock is taken before the descriptor is opened. fork() takes it too, so no child is forked
// between opening and noting: it would keep a copy that nobody closes.
int open_here_only(const std::function<int()>& open) {
  ForkState& fork = state();
  const std::lock_guard lock(fork.mutex);
  const int descriptor = open();
  fork.note(descriptor);
  return descriptor;
}

std::array<int, 2> open_two_here_only(const std::function<std::array<int, 2>()>& open) {
  ForkState& fork = state();
  const std::lock_guard lock(fork.mutex);
  const std::array<int, 2> descriptors = open();
  for (const int descriptor : descriptors) {
    fork.note(descriptor);
  }
  return descriptors;
}

// Forgetting and closing are one step under the lock: a child forked between them would keep its
// copy open, and peers would not see the end of the connection.
void close_and_forget(int descriptor) noexcept {
  ForkState& fork = state();
  const std::lock_guard lock(fork.mutex);
  fork.forget(descriptor);
  close(descriptor);
}

}  // namespace sprat::comm
