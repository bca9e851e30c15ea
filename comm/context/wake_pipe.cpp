#include "comm/context/wake_pipe.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace sprat::comm {
namespace {

bool is(const struct stat& status, const WakePipe::Name& name) {
  return S_ISFIFO(status.st_mode) && status.st_ino == name.inode;
}

// Fails only if the pipe is full, and so is readable already.
void write_byte(int end) noexcept {
  const char byte = 0;
  static_cast<void>(::write(end, &byte, 1) == 1);
}

}  // namespace

std::unique_ptr<WakePipe> WakePipe::open() noexcept {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return nullptr;
  }
  return std::unique_ptr<WakePipe>(new WakePipe(ends[0], ends[1]));
}

WakePipe::~WakePipe() {
  ::close(ends_[0]);
  ::close(ends_[1]);
}

WakePipe::Name WakePipe::name() const noexcept {
  struct stat status {};
  fstat(ends_[0], &status);
  return {getpid(), ends_[0], status.st_ino};
}

void WakePipe::write() noexcept { write_byte(ends_[1]); }

void WakePipe::drain() noexcept {
  std::array<char, 64> bytes;
  while (::read(ends_[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) {
  }
}

// The process may have ended, and its numbers be another's by now, so nothing is opened nor written
// to that is not this very pipe. It is opened for reading too: writing to a pipe that nobody reads
// any more would raise SIGPIPE.
std::unique_ptr<WakePipeWriter> WakePipeWriter::open(const WakePipe::Name& name) noexcept {
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", static_cast<int>(name.pid),
                name.descriptor);
  struct stat status {};
  if (::stat(path.data(), &status) != 0 || !is(status, name)) {
    return nullptr;
  }
  const int end = ::open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (end < 0) {
    return nullptr;
  }
  if (fstat(end, &status) != 0 || !is(status, name)) {
    ::close(end);
    return nullptr;
  }
  return std::unique_ptr<WakePipeWriter>(new WakePipeWriter(end));
}

WakePipeWriter::~WakePipeWriter() { ::close(end_); }

void WakePipeWriter::write() noexcept { write_byte(end_); }

}  // namespace sprat::comm
