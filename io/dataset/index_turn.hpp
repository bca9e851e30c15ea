// One process at a time makes an index; who comes later waits for it and reads what it made.
//
// The turn is a lock on a file beside the index. The kernel takes it from a process that dies, so
// the next one goes on at once, by the journal that is left. Who holds it writes a line into the
// file each second, so that those who wait can tell a slow disk from a process that is stopped, or
// from a host that is gone with a lock that nobody takes away: where no line comes for a while,
// each makes the index by itself, as all do on a file system without locks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace sprat::io {

struct TurnOptions {
  /// Before the first look and, twice as long each time, before the last ones. A shared file system
  /// tells nobody that a file came or a lock went, so it is asked.
  std::chrono::milliseconds look = std::chrono::milliseconds(50);
  std::chrono::milliseconds longest_look = std::chrono::seconds(2);
  /// Between two lines of who holds the turn, and in the log of who waits for it.
  std::chrono::milliseconds line = std::chrono::seconds(1), tell = std::chrono::seconds(10);
  /// Without a new line. Network file systems show a line up to a minute late.
  std::chrono::milliseconds patience = std::chrono::minutes(2);
  /// flock(), but in tests of file systems that have none.
  int (*lock)(int descriptor, int operation) = nullptr;
};

/// While it lives, the turn is this process's, unless it came to nothing. One thread at a time.
class IndexTurn final {
 public:
  /// Waits for it, but returns without as soon as `made()` says that another process has done the
  /// work, and where there are no locks, or nobody can tell who has it. An empty path: there are
  /// none.
  IndexTurn(const std::string& index_path, const std::function<bool()>& made,
            TurnOptions options = {});
  ~IndexTurn();  ///< The file goes.
  IndexTurn(const IndexTurn&) = delete;
  IndexTurn& operator=(const IndexTurn&) = delete;

  bool is_held() const { return descriptor_ >= 0; }
  /// What those who wait are told. Any thread.
  void progress(std::uint64_t files, std::uint64_t of_files);

 private:
  enum class Try { taken, busy, impossible };
  Try try_once(std::string& line);
  void wait(const std::function<bool()>& made, std::string line);
  void tell_those_who_wait();
  void write_line();

  const std::string path_;
  const TurnOptions options_;
  int descriptor_ = -1;
  std::thread teller_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable ends_;
  bool ended_ = false;
  std::uint64_t lines_ = 0, files_ = 0, of_files_ = 0;
};

}  // namespace sprat::io
