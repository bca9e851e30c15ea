#include "io/readers/open_files.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

constexpr std::size_t most_open_files = 8192;

std::size_t half_of_the_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return most_open_files;
  }
  return std::clamp<std::size_t>(limit.rlim_cur / 2, 1, most_open_files);
}

/// "2026-01-31 12:00:00.123456789", in UTC.
std::string time_in_words(std::int64_t modified_ns) {
  constexpr std::int64_t second = 1'000'000'000;
  // Times before 1970 round down, too.
  const std::int64_t fraction = (modified_ns % second + second) % second;
  const std::time_t seconds = (modified_ns - fraction) / second;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}:{:02}.{:09}", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     fraction);
}

FileStamp stamp_in(const struct stat& status) {
  return {
      .bytes = static_cast<std::uint64_t>(status.st_size),
      .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void require_same(const KnownFile& known, const FileStamp& stamp) {
  need(stamp == known.stamp, known.path, " has ", stamp.bytes, " bytes of ",
       time_in_words(stamp.modified_ns), " UTC, but when it was indexed had ", known.stamp.bytes,
       " of ", time_in_words(known.stamp.modified_ns),
       "; index the dataset anew, or put the old file back");
}

}  // namespace

OpenFile::~OpenFile() { ::close(descriptor_); }

OpenFiles::OpenFiles(Known known, const OpenFilesOptions& options)
    : known_(std::move(known)),
      most_(options.most > 0 ? options.most : half_of_the_limit()),
      // O_NONBLOCK: a FIFO in a file's place is looked at below, not waited for.
      flags_(O_RDONLY | O_CLOEXEC | O_NONBLOCK | (options.direct ? O_DIRECT : 0)),
      nothing_ahead_(options.nothing_ahead),
      look_again_(options.look_again) {}

OpenFiles::Opened OpenFiles::open(std::uint32_t file) {
  if (const auto found = by_file_.find(file); found != by_file_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return open_again(recent_.front());
  }
  const KnownFile known = known_(file);
  const int descriptor = open_descriptor(known.path);
  if (descriptor < 0) {
    return {.file = nullptr, .error = errno};
  }
  struct stat status {};
  const int error = ::fstat(descriptor, &status) != 0 ? errno : 0;
  auto opened = std::make_shared<const OpenFile>(descriptor, status);
  if (error != 0) {
    return {.file = nullptr, .error = error};
  }
  need(S_ISREG(status.st_mode), known.path,
       " is no regular file any more; put the file back that was indexed");
  require_same(known, stamp_in(status));
  // Old kernels answer reads of such descriptors by io_uring with EAGAIN.
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return {.file = nullptr, .error = errno};
  }
  if (nothing_ahead_) {
    ::posix_fadvise(descriptor, 0, 0,
                    POSIX_FADV_RANDOM);  // advice: where it is not heard, so be it
  }
  while (by_file_.size() >= most_) {
    close_oldest();
  }
  recent_.push_front({.number = file, .file = std::move(opened), .looked = Clock::now()});
  by_file_[file] = recent_.begin();
  return {.file = recent_.front().file, .error = 0, .fresh = true};
}

/// A descriptor outlives a file that was removed or renamed, and has its bytes. It shows new bytes
/// where somebody writes into the file itself: records would be cut out of those.
OpenFiles::Opened OpenFiles::open_again(Kept& kept) {
  const Clock::time_point now = Clock::now();
  if (now - kept.looked >= look_again_) {
    struct stat status {};
    if (::fstat(kept.file->descriptor(), &status) != 0) {
      return {.file = nullptr, .error = errno};
    }
    require_same(known_(kept.number), stamp_in(status));
    kept.looked = now;
  }
  return {.file = kept.file};
}

bool OpenFiles::is_unchanged(std::uint32_t file, const OpenFile& opened) const {
  struct stat status {};
  return ::fstat(opened.descriptor(), &status) == 0 && stamp_in(status) == known_(file).stamp;
}

/// Others of this process take descriptors, too: where none is left, ours make room.
int OpenFiles::open_descriptor(const std::string& path) {
  while (true) {
    int descriptor = ::open(path.c_str(), flags_);
    if (descriptor < 0 && errno == EINVAL && (flags_ & O_DIRECT) != 0) {
      // Its file system has no direct reads; that of another file, which was asked, has.
      descriptor = ::open(path.c_str(), flags_ & ~O_DIRECT);
    }
    const bool lacks = descriptor < 0 && (errno == EMFILE || errno == ENFILE);
    if (!lacks || by_file_.empty()) {
      return descriptor;
    }
    for (std::size_t half = by_file_.size() / 2 + 1; half > 0; --half) {
      close_oldest();
    }
  }
}

void OpenFiles::close_oldest() {
  by_file_.erase(recent_.back().number);
  recent_.pop_back();
}

void OpenFiles::drop(std::uint32_t file) {
  if (const auto found = by_file_.find(file); found != by_file_.end()) {
    recent_.erase(found->second);
    by_file_.erase(found);
  }
}

}  // namespace sprat::io
