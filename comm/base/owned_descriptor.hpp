// The owner of a file descriptor, and how files that may be anything are opened.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace sprat::comm {

/// Closes its descriptor in the end. Children of fork() that destroy a copy close theirs.
class OwnedDescriptor {
 public:
  /// -1, as calls return that fail: it has none.
  explicit OwnedDescriptor(int number = -1) noexcept : number_(number) {}
  ~OwnedDescriptor() { close(); }
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const noexcept { return number_; }
  bool open() const noexcept { return number_ >= 0; }
  void close() noexcept {
    if (open()) {
      ::close(std::exchange(number_, -1));
    }
  }

 private:
  int number_;
};

/// Without waiting, and without a terminal for this process: whatever lies at the path may be a
/// FIFO that nobody writes into, or a terminal. Means nothing for a regular file. Not open(): errno
/// says why.
inline OwnedDescriptor open_to_read(const char* path, int flags = 0) noexcept {
  return OwnedDescriptor(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
}

}  // namespace sprat::comm
