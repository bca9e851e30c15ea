// Brings released files back before they are read: a thread that looks ahead in the order, asks
// Lustre for files, and hears of those that are back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/loader/file_table.hpp"
#include "io/loader/lustre/first_uses.hpp"
#include "io/loader/lustre/lustre_mounts.hpp"
#include "io/lustre/restore_ahead.hpp"

namespace sprat::io {

struct RestorerOptions {
  std::shared_ptr<const FileTable> files;
  std::shared_ptr<LustreMounts> mounts;
  FirstUsesOptions uses;
  /// Ranks share the work by `host` and `hosts`; all have the same seed.
  RestoreOptions restoring = {};
  /// There is something for take_ended(). Any thread; outlives the restorer.
  std::function<void()> notice;
};

struct RestoreProgress {
  std::uint64_t restored_bytes = 0;  ///< Since the beginning.
  std::uint64_t left_bytes = 0;      ///< As far as the order was looked at.
};

/// The file, why, and what to do.
std::string lost_text(const std::string& path, const std::string& why);

/// One thread at a time.
class Restorer final {
 public:
  explicit Restorer(RestorerOptions options);
  /// Does not wait for files that are on their way.
  ~Restorer();
  Restorer(const Restorer&) = delete;
  Restorer& operator=(const Restorer&) = delete;

  /// The file was released when it was planned to be read, for the sample at `position`: of all
  /// such files take_ended() tells.
  void needs(std::uint32_t file, std::uint64_t position);
  /// The samples before this position are planned.
  void advance(std::uint64_t position);
  /// Files that are back or lost since the last call, among them some that nobody needed yet.
  std::vector<EndedRestore> take_ended();
  RestoreProgress progress() const;

 private:
  class Engine;
  struct RestoreLetters {
    std::vector<FirstUse> needed;
    bool stop = false, woken = false;
  };
  void run() noexcept;
  std::optional<std::vector<FirstUse>> wait(RestoreAhead::Time wakes_at);
  void tell(std::vector<EndedRestore> ended, const RestoreProgress& progress);

  const std::function<void()> notice_;
  std::atomic<std::uint64_t> position_ = 0;  // relaxed: it guards nothing
  /// From here on the thread wants to know of the position.
  std::atomic<std::uint64_t> wakes_at_position_ = std::numeric_limits<std::uint64_t>::max();
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  RestoreLetters letters_;
  std::vector<EndedRestore> ended_;
  RestoreProgress progress_;
  std::vector<std::uint32_t> needed_;  // and not ended
  bool broken_ = false;             // the thread has ended by an error: reads restore by themselves
  std::unique_ptr<Engine> engine_;  // the thread's
  std::thread thread_;
};

}  // namespace sprat::io
