#include "comm/base/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/memory_room.hpp"
#include "comm/base/owned_descriptor.hpp"

namespace sprat {
namespace {

constexpr std::uint64_t longest_setting = std::uint64_t{64} << 20;
/// More than profilers write; it ends the reading of what grows meanwhile.
constexpr std::uint64_t longest_file = std::uint64_t{64} << 30;
/// What comes of it is not known before, so that memory cannot be asked for.
constexpr std::uint64_t longest_pipe = std::uint64_t{1} << 30;

/// More names than ended writers leave behind.
constexpr int most_names = 1000;

/// What a rename may take the place of. As root it would take that of /dev/null, too.
bool is_plain_or_absent(const std::string& path) {
  struct stat there {};
  return lstat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode);
}

/// 0, or why not all is there.
int write_error(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t wrote = ::write(descriptor, content.data(), content.size());
    if (wrote > 0) {
      content.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (wrote == 0 || errno != EINTR) {
      return wrote == 0 ? ENOSPC : errno;  // who takes nothing has no room, or never takes any
    }
  }
  return 0;
}

/// `shown` is what errors call it.
struct Wanted {
  std::string path, shown;
  std::uint64_t longest = longest_file;
  bool may_be_piped = false;  ///< As by the shell's <(command).
};

void wait_for_writers(int pipe) { fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) & ~O_NONBLOCK); }

/// To its end: files of /proc say that they have no bytes.
std::string read_to_end(const Wanted& wanted, int descriptor, bool pipe, std::string content) {
  std::array<char, 1 << 16> room;
  const std::uint64_t longest = pipe ? std::min(wanted.longest, longest_pipe) : wanted.longest;
  while (const ssize_t got = ::read(descriptor, room.data(), room.size())) {
    if (got > 0) {
      content.append(room.data(), static_cast<std::size_t>(got));
      need(content.size() <= longest, "cannot read ", wanted.shown, ": it has more than ", longest,
           " bytes; name a shorter file");
    } else if (pipe && errno == EAGAIN) {
      wait_for_writers(descriptor);
    } else {
      need(errno == EINTR, "cannot read ", wanted.shown, ": ", std::strerror(errno));
    }
  }
  need(!pipe || !content.empty(), "cannot read ", wanted.shown,
       ": it is a pipe that nobody writes into; name a file");
  return content;
}

std::string read_file(const Wanted& wanted) {
  const std::string& shown = wanted.shown;
  const comm::OwnedDescriptor file = comm::open_to_read(wanted.path.c_str());
  need(file.open(), "cannot open ", shown, ": ", std::strerror(errno));
  struct stat there {};
  need(fstat(file.number(), &there) == 0, "cannot read ", shown, ": ", std::strerror(errno));
  need(!S_ISDIR(there.st_mode), "cannot read ", shown, ": it is a folder; name a file");
  const bool pipe = wanted.may_be_piped && S_ISFIFO(there.st_mode);
  need(pipe || S_ISREG(there.st_mode), "cannot read ", shown,
       ": it is a pipe or a device, no file; write what it gives into a file, and name that");
  const auto bytes = static_cast<std::uint64_t>(there.st_size);
  need(bytes <= wanted.longest, "cannot read ", shown, ": it has ", bytes, " bytes, and at most ",
       wanted.longest, " are read; name a shorter file");
  // A file with holes may be longer than all memory.
  comm::need_memory(bytes, wanted.path.c_str());
  std::string content;
  content.reserve(bytes);
  return read_to_end(wanted, file.number(), pipe, std::move(content));
}

}  // namespace

WholeFile::WholeFile(std::string path) : path_(std::move(path)) {
  constexpr mode_t usual = 0666;
  if (!is_plain_or_absent(path_)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, usual);
    if (descriptor_ < 0) {
      fail(errno);
    }
    return;
  }
  // A name of its own for each writer: two that write one file would mix in one part of it.
  for (int number = 0; descriptor_ < 0; ++number) {
    const std::string part = text(path_, ".", getpid(), "-", number, ".part");
    descriptor_ = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, usual);
    if (descriptor_ >= 0) {
      part_ = part;
    } else if (errno != EEXIST || number == most_names) {
      fail(errno);
    }
  }
}

WholeFile::~WholeFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!part_.empty()) {
    std::remove(part_.c_str());
  }
}

void WholeFile::append(std::string_view content) {
  if (const int error = write_error(descriptor_, content); error != 0) {
    fail(error);
  }
}

void WholeFile::keep() {
  // Some network file systems say only here that a disk is full.
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail(errno);
  }
  if (!part_.empty() && std::rename(part_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  part_.clear();
}

void WholeFile::fail(int error) {
  throw Error(
      ErrorCode::unavailable,
      text(path_, ": ", std::strerror(error),
           error == ENOENT                      ? "; is its folder there?"
           : error == ENOSPC || error == EDQUOT ? "; free some space, or name another disk"
           : error == EACCES || error == EROFS  ? "; name a folder that this user may write to"
                                                : ""));
}

void write_whole_file(const std::string& path, std::string_view content) {
  WholeFile file(path);
  file.append(content);
  file.keep();
}

std::string read_whole_file(const std::string& path) {
  return read_file({.path = path, .shown = text('"', path, '"'), .may_be_piped = true});
}

std::string read_setting_file(std::string_view variable, const std::string& path) {
  return read_file(
      {.path = path, .shown = text(variable, "=\"", path, '"'), .longest = longest_setting});
}

}  // namespace sprat
