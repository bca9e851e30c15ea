// A file of what a rank's calls gave: whoever drives appends to it and never waits, a thread of its
// own writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/fork.hpp"

namespace sprat::comm::status {

/// The bytes mean something only to who appends them. Token held, but for constructor and
/// destructor.
class CallLog final {
 public:
  /// Makes the folder if it is missing. Throws Error{unavailable} if the file cannot be made.
  CallLog(const std::string& folder, const std::string& name);
  /// Writes what is left.
  ~CallLog();
  CallLog(const CallLog&) = delete;

  /// Both spans, one after the other, or neither: false if the disk is so far behind that there is
  /// no room. Never waits, never throws.
  bool append(std::span<const std::byte> head, std::span<const std::byte> rest) noexcept;
  const std::string& folder() const { return folder_; }
  const std::string& name() const { return name_; }

  // What calls are told by, across the communicators of a rank.
  std::int64_t started_ns = 0;        ///< On the rank's clock; times of calls count from there.
  std::int64_t step = -1;             ///< What the program said last; -1: nothing yet.
  std::uint64_t calls = 0;            ///< Made so far.
  std::uint64_t lost = 0;             ///< Records for which there was no room since the last one.
  std::uint32_t communicators = 0;    ///< Made so far.
  std::int64_t steps_agreed_at = -1;  ///< The step at which replicas were last found alike.
  bool has_failed = false;            ///< A communicator of this rank has: calls may be missing.

  /// The results that all ranks of a communicator must have alike, folded into one number.
  struct Replicas {
    std::uint64_t communicator = 0;  ///< The same number on all of its ranks, and on no others.
    std::uint64_t calls = 0;         ///< So many results.
    std::uint64_t sum = 0;
  };
  std::list<Replicas> replicas;  ///< Of those communicators that live; a list, so they stay put.

 private:
  void write_out() noexcept;
  void write_up_to(std::uint64_t end) noexcept;

  const std::string folder_, name_;
  const ProcessMark mark_;
  int file_ = -1;
  std::vector<std::byte> room_;  ///< A ring.
  /// Bytes appended since the beginning. Release: they are in the ring. Only who drives changes it.
  std::atomic<std::uint64_t> appended_ = 0;
  /// Bytes written since then. Release: their room may be used again. Only the thread changes it.
  std::atomic<std::uint64_t> written_ = 0;
  bool broken_ = false;  ///< The thread's: the disk refused something, which was said.
  std::mutex mutex_;     ///< Guards ending_.
  bool ending_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace sprat::comm::status
