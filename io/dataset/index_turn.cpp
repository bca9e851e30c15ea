#include "io/dataset/index_turn.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/fork.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_line = 512;

std::string line_of(int descriptor) {
  std::array<char, longest_line> line{};
  const ssize_t bytes = pread(descriptor, line.data(), line.size(), 0);
  return {line.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

/// Others may put what they like into a folder that is everybody's. A line is written to a file of
/// turns alone, never to what a link leads to, nor to a pipe.
int open_turn_file(const std::string& path) {
  // A child that is forked meanwhile must not keep the lock.
  const int descriptor = comm::open_here_only([&] {
    return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  });
  struct stat status {};
  if (descriptor >= 0 && (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))) {
    comm::close_and_forget(descriptor);
    return -1;
  }
  return descriptor;
}

/// Who had the turn before removes its file. A lock on that one keeps nobody away.
bool is_at(const std::string& path, int descriptor) {
  struct stat mine {
  }, there{};
  return fstat(descriptor, &mine) == 0 && stat(path.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return text("process ", getpid(), " of host ", host.data());
}

}  // namespace

IndexTurn::IndexTurn(const std::string& index_path, const std::function<bool()>& made,
                     TurnOptions options)
    : path_(index_path.empty() ? "" : index_path + ".lock"), options_(options) {
  if (path_.empty()) {
    return;
  }
  std::string line;
  switch (try_once(line)) {
    case Try::busy:
      wait(made, line);
      break;
    case Try::taken:
    case Try::impossible:
      break;
  }
  if (is_held()) {
    tell_those_who_wait();
  }
}

IndexTurn::~IndexTurn() {
  if (!is_held()) {
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  if (teller_.joinable()) {
    teller_.join();
  }
  // Before the lock goes: behind it the file may be the next one's.
  unlink(path_.c_str());
  comm::close_and_forget(descriptor_);
}

/// `line` <- that of who has the turn.
IndexTurn::Try IndexTurn::try_once(std::string& line) {
  const auto lock = options_.lock != nullptr ? options_.lock : flock;
  for (;;) {
    const int descriptor = open_turn_file(path_);
    if (descriptor < 0) {
      return Try::impossible;  // the index will not be kept there either, and that is told
    }
    if (lock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      if (is_at(path_, descriptor)) {
        descriptor_ = descriptor;
        return Try::taken;
      }
      comm::close_and_forget(descriptor);
      continue;
    }
    const int error = errno;
    line = line_of(descriptor);
    comm::close_and_forget(descriptor);
    if (error == EWOULDBLOCK || error == EINTR) {
      return Try::busy;
    }
    log().info("{} cannot be locked ({}): processes that index at once each do all of it", path_,
               std::strerror(error));
    unlink(path_.c_str());
    return Try::impossible;
  }
}

void IndexTurn::wait(const std::function<bool()>& made, std::string line) {
  auto changed = Clock::now(), told = changed - options_.tell;
  std::chrono::milliseconds look = options_.look;
  for (std::string now = line;; look = std::min(2 * look, options_.longest_look)) {
    const auto at = Clock::now();
    if (now != line) {
      line = now;
      changed = at;
    }
    if (at - changed >= options_.patience) {
      log().warn(
          "{} has not been written to for {} s by who indexes ({}): this process does it, too",
          path_, std::chrono::duration_cast<std::chrono::seconds>(at - changed).count(), line);
      return;
    }
    if (at - told >= options_.tell) {
      told = at;
      log().info("waiting for the index that {} makes", line.empty() ? "another process" : line);
    }
    std::this_thread::sleep_for(look);
    if (made() || try_once(now) != Try::busy) {
      return;
    }
  }
}

void IndexTurn::progress(std::uint64_t files, std::uint64_t of_files) {
  const std::scoped_lock lock(mutex_);
  files_ = files;
  of_files_ = of_files;
}

/// A thread of its own: one file may take longer than others have patience.
void IndexTurn::tell_those_who_wait() {
  write_line();
  const auto tell = [this] {
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, options_.line, [this] { return ended_; })) {
      lock.unlock();
      write_line();
      lock.lock();
    }
  };
  try {
    teller_ = start_thread("the turn to index", tell);
  } catch (const Error& error) {
    log().warn("{}; others may not wait for the index", error.what());
  }
}

/// What cannot be written is left: others then lose their patience, no more.
void IndexTurn::write_line() {
  std::string line;
  {
    const std::scoped_lock lock(mutex_);
    line = text(this_process(), ": ", files_, " of ", of_files_, " files, line ", ++lines_);
  }
  // Shorter lines never follow longer ones, since counts only grow.
  const ssize_t written = pwrite(descriptor_, line.data(), line.size(), 0);
  static_cast<void>(written);
}

}  // namespace sprat::io
