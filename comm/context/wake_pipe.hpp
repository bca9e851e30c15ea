// A pipe whose byte ends a poll() of another process: what a futex is for a thread that has to wait
// for descriptors too.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace sprat::comm {

/// Owner of both ends. The reading end is for one thread at a time; anybody may write.
class WakePipe {
 public:
  /// What peers find it by.
  struct Name {
    pid_t pid = 0;
    int descriptor = -1;      ///< Of the reading end, in that process.
    std::uint64_t inode = 0;  ///< No other pipe of this machine has it.
  };
  /// Null if this process has no descriptors left.
  static std::unique_ptr<WakePipe> open() noexcept;
  ~WakePipe();
  WakePipe(const WakePipe&) = delete;
  WakePipe& operator=(const WakePipe&) = delete;

  Name name() const noexcept;
  /// Readable once somebody has written.
  int descriptor() const { return ends_[0]; }
  void write() noexcept;
  /// Takes what was written.
  void drain() noexcept;

 private:
  WakePipe(int reads, int writes) : ends_{reads, writes} {}
  int ends_[2];
};

/// Another process's WakePipe, to write to.
class WakePipeWriter {
 public:
  /// Null if there is no such pipe any more, or it cannot be had.
  static std::unique_ptr<WakePipeWriter> open(const WakePipe::Name& name) noexcept;
  ~WakePipeWriter();
  WakePipeWriter(const WakePipeWriter&) = delete;
  WakePipeWriter& operator=(const WakePipeWriter&) = delete;

  void write() noexcept;

 private:
  explicit WakePipeWriter(int end) : end_(end) {}
  int end_;
};

}  // namespace sprat::comm
