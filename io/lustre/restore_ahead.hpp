// When to ask for files that are in the archive alone: a window ahead of the reader, never all of
// them, since a storm of requests stops the metadata server. A pure state machine: the time is an
// argument, and whoever owns it asks the file system.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/lustre/hsm.hpp"

namespace sprat::io {

struct ReleasedFile {
  std::uint32_t file = 0;
  std::uint64_t bytes = 0;
  std::uint64_t first_use = 0;  ///< The position of the first sample that wants it.
};

struct RestoreOptions {
  /// The window holds files until it has both as many files and as many bytes.
  std::size_t horizon_files = 64;
  std::uint64_t horizon_bytes = 20'000'000'000;
  std::size_t most_outstanding = 1000;  ///< Of the job; hosts share it.
  std::uint64_t keep_free_bytes = std::uint64_t{1} << 30;
  int host = 0, hosts = 1;  ///< Each file is asked for by one host, by a keyed hash.
  std::uint64_t seed = 0;
  std::size_t first_byte_threads = 8;  ///< Reads of one byte at a time, where requests are refused.
};

/// What is to be done now; empty lists: nothing.
struct RestoreStep {
  std::vector<std::uint32_t> restore;     ///< At most 52, in one request.
  std::vector<std::uint32_t> ask_state;   ///< By hsm_state_ioctl; answers go to told().
  std::vector<std::uint32_t> first_byte;  ///< A blocking read of one byte brings the file back.
};

struct LostFile {
  std::uint32_t file = 0;
  std::string why;  ///< A sentence without the file's name.
};

/// A file that is waited for no more: it is back, or lost.
struct EndedRestore {
  std::uint32_t file = 0;
  bool lost = false;
  std::string why = {};  ///< Of a lost one.
};

struct RestoreReport {
  std::size_t left_files = 0, outstanding = 0;
  std::uint64_t left_bytes = 0, restored_bytes = 0;
  bool waits_for_space = false;
  bool by_first_byte = false;
  std::vector<LostFile> lost = {};  ///< Those that do not come back.
};

/// Which of `hosts` hosts asks for a file.
int restoring_host(std::uint64_t seed, std::uint32_t file, int hosts);

/// What is known of a file that was released.
struct RestoredFile {
  enum class State : std::uint8_t { released, asked, reading, resident, lost };
  ReleasedFile file;
  State state = State::released;
  bool ours = false;  ///< This host asks for it; else another one does.
  bool late = false;  ///< It is in the window before its place comes.
  int quiet = 0;      ///< Answers in a row that nothing is under way.
  int attempts = 0;
};

class RestoreAhead {
 public:
  using Time = std::chrono::nanoseconds;  ///< Of any steady clock.

  /// `files` in the order of first use.
  RestoreAhead(std::vector<ReleasedFile> files, const RestoreOptions& options);

  /// One more, which may be one that was back and is released again. As a rule the last in the
  /// order; one that comes late counts as within the window. Of files that are waited for, or lost,
  /// nothing changes.
  void add(const ReleasedFile& file);
  /// The reader has come to this sample.
  void advance(std::uint64_t position);
  /// `free_bytes`: what statfs says. What it returns counts as begun.
  RestoreStep next(Time now, std::uint64_t free_bytes);
  /// When next() has something to do at the latest, if nothing is told before; max() if never.
  Time wakes_at() const noexcept { return wakes_at_; }

  /// An answer to ask_state.
  void told(std::uint32_t file, const HsmState& state, Time now);
  /// The request that restored these files was refused. Where the system has no such request or
  /// does not allow it (EPERM, ENOTTY, ...), single bytes are read from now on; else they are asked
  /// for again.
  void refused(std::span<const std::uint32_t> files, int error, Time now);
  /// The read of one byte has ended; 0 or an errno.
  void first_byte_read(std::uint32_t file, int error, Time now);

  bool resident(std::uint32_t file) const;  ///< True of files that were never released, too.
  /// Those that came back or were lost since the last call.
  std::vector<EndedRestore> take_ended() { return std::exchange(ended_, {}); }
  RestoreReport report() const;

 private:
  using State = RestoredFile::State;
  /// By first use, then by place: who came late is not asked for last.
  using Turn = std::pair<std::uint64_t, std::size_t>;
  Turn turn_of(std::size_t index) const { return {entries_[index].file.first_use, index}; }
  void append(const ReleasedFile& file);
  void enter_window(std::size_t index);
  void widen();
  void begin(RestoreStep& step, std::uint64_t free_bytes, Time now);
  void poll(RestoreStep& step, Time now);
  void plan_waking(Time now);
  void end(std::size_t index, State state, Time now);
  void put_back(std::size_t index, Time now);
  void try_again(std::size_t index, const std::string& why, Time now);
  bool is_open(std::uint32_t file, std::size_t& index) const;

  const RestoreOptions options_;
  std::vector<RestoredFile> entries_;            // in the order of first use, but for late ones
  std::map<std::uint32_t, std::size_t> places_;  // of files in entries_
  std::size_t cursor_ = 0, window_end_ = 0;      // places of the window
  std::uint64_t window_bytes_ = 0;
  std::set<Turn> waiting_;         // in the window, ours, not asked for
  std::set<std::size_t> watched_;  // in the window, asked for here or elsewhere
  std::size_t most_of_this_host_ = 1, outstanding_ = 0;
  std::uint64_t outstanding_bytes_ = 0, restored_bytes_ = 0;
  std::uint64_t position_ = 0, last_use_ = 0;  // last_use_: the latest first use of all
  Time wait_{}, poll_at_{}, hold_until_{}, wakes_at_{};
  bool waits_for_space_ = false, by_first_byte_ = false;
  std::vector<LostFile> lost_;
  std::vector<EndedRestore> ended_;
};

}  // namespace sprat::io
