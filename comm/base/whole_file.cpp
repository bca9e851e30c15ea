#include "comm/base/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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

/// Closes the descriptor. 0, or why not all is there.
int write_error(int descriptor, std::string_view content) {
  int error = 0;
  while (!content.empty() && error == 0) {
    const ssize_t wrote = ::write(descriptor, content.data(), content.size());
    if (wrote > 0) {
      content.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (wrote == 0 || errno != EINTR) {
      error = wrote == 0 ? ENOSPC : errno;  // who takes nothing has no room, or never takes any
    }
  }
  // Some network file systems say only here that a disk is full.
  return ::close(descriptor) != 0 && error == 0 ? errno : error;
}

void require_written(const std::string& path, int error) {
  need(error == 0, path, ": ", std::strerror(error),
       error == ENOENT                      ? "; is its folder there?"
       : error == ENOSPC || error == EDQUOT ? "; free some space, or name another disk"
       : error == EACCES || error == EROFS  ? "; name a folder that this user may write to"
                                            : "");
}

}  // namespace

void write_whole_file(const std::string& path, std::string_view content) {
  constexpr mode_t usual = 0666;
  if (!is_plain_or_absent(path)) {
    const int there = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, usual);
    return require_written(path, there < 0 ? errno : write_error(there, content));
  }
  // A name of its own for each writer: two that write one file would mix in one part of it.
  std::string part;
  int descriptor = -1;
  for (int number = 0; descriptor < 0; ++number) {
    part = text(path, ".", getpid(), "-", number, ".part");
    descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, usual);
    if (descriptor < 0 && (errno != EEXIST || number == most_names)) {
      return require_written(path, errno);
    }
  }
  int error = write_error(descriptor, content);
  if (error == 0 && std::rename(part.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    std::remove(part.c_str());
  }
  require_written(path, error);
}

}  // namespace sprat
