#include "comm/base/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

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
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  need(descriptor >= 0, "cannot open \"", path, "\": ", std::strerror(errno));
  struct stat there {};
  const bool folder = fstat(descriptor, &there) == 0 && S_ISDIR(there.st_mode);
  std::string content;
  std::array<char, 1 << 16> room;
  ssize_t got = 0;
  while (!folder && (got = ::read(descriptor, room.data(), room.size())) != 0) {
    if (got > 0) {
      content.append(room.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      break;
    }
  }
  const int error = errno;
  ::close(descriptor);
  need(!folder, "cannot read \"", path, "\": it is a folder");
  need(got == 0, "cannot read \"", path, "\": ", std::strerror(error));
  return content;
}

}  // namespace sprat
