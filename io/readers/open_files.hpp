// Descriptors of a dataset's files: as many open as are allowed, each file the one that was
// indexed.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "io/formats/format.hpp"

namespace sprat::io {

/// A file as its index knows it.
struct KnownFile {
  std::string path;
  FileStamp stamp;
};

struct OpenFilesOptions {
  /// Descriptors kept open; 0: half of what this process may have, at most 8192.
  std::size_t most = 0;
  bool direct = false;  ///< For direct reads.
  /// The kernel reads what is asked for, nothing ahead of it.
  bool nothing_ahead = false;
  /// A file that was opened so long ago is looked at again before it is read on, since somebody may
  /// write into it.
  std::chrono::nanoseconds look_again = std::chrono::seconds(1);
};

/// Closes its descriptor.
class OpenFile final {
 public:
  OpenFile(int descriptor, const struct stat& status) noexcept
      : descriptor_(descriptor), device_(status.st_dev) {}
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const noexcept { return descriptor_; }
  /// As fstat said when it was opened: on a parallel file system each fstat asks servers.
  std::uint64_t device() const noexcept { return device_; }

 private:
  int descriptor_;
  std::uint64_t device_;
};

/// The least recently used are closed first: each open of a file of a parallel file system is a
/// question to its one metadata server. One thread at a time.
class OpenFiles final {
 public:
  using Known = std::function<KnownFile(std::uint32_t file)>;
  OpenFiles(Known known, const OpenFilesOptions& options);

  struct Opened {
    /// Shared with reads under way: a descriptor that was closed and given to another file would
    /// give them that file's bytes. Null if `error`.
    std::shared_ptr<const OpenFile> file;
    int error = 0;       ///< errno's, of open or fstat; Scheduler::done() knows what to do.
    bool fresh = false;  ///< It was opened by this call.
  };
  /// Throws Error{unavailable} naming path and both stamps if the file is another one than was
  /// indexed, or no regular file; also if it has become so while it was open.
  Opened open(std::uint32_t file);
  /// Whether the file, which open() gave, still is the one that was indexed. Asks the system.
  bool is_unchanged(std::uint32_t file, const OpenFile& opened) const;
  /// The next open() opens it by its path. Reads under way keep the old one.
  void drop(std::uint32_t file);

  std::size_t open_now() const noexcept { return by_file_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    std::uint32_t number = 0;
    std::shared_ptr<const OpenFile> file;
    Clock::time_point looked;
  };
  using Recent = std::list<Kept>;

  Opened open_again(Kept& kept);
  int open_descriptor(const std::string& path);
  void close_oldest();

  Known known_;
  std::size_t most_;
  int flags_;
  bool nothing_ahead_;
  std::chrono::nanoseconds look_again_;
  Recent recent_;  // the last used first
  std::unordered_map<std::uint32_t, Recent::iterator> by_file_;
};

}  // namespace sprat::io
