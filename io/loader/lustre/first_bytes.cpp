#include "io/loader/lustre/first_bytes.hpp"

#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "comm/base/thread.hpp"
#include "io/loader/lustre/lustre_mounts.hpp"
#include "sprat/error.hpp"

namespace sprat::io {

struct FirstBytes::Shared {
  std::shared_ptr<const FsProbe> probe;
  std::mutex mutex;  // guards what follows
  std::function<void()> notice;
  std::vector<FirstByte> ended;

  void end(std::uint32_t file, int error) {
    const std::lock_guard lock(mutex);
    ended.push_back({.file = file, .error = error});
    if (notice) {
      notice();
    }
  }
};

namespace {

int read_first_byte(const FsProbe& probe, const std::string& path) {
  const ProbedFile file(probe, path);
  if (file.error() != 0) {
    return file.error();
  }
  char byte = 0;
  while (::pread(file.descriptor(), &byte, 1, 0) < 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

FirstBytes::FirstBytes(std::shared_ptr<const FsProbe> probe, std::function<void()> notice)
    : shared_(std::make_shared<Shared>()) {
  shared_->probe = std::move(probe);
  shared_->notice = std::move(notice);
}

FirstBytes::~FirstBytes() {
  const std::lock_guard lock(shared_->mutex);
  shared_->notice = {};
}

void FirstBytes::read(std::uint32_t file, const std::string& path) {
  try {
    start_thread("restoring a file", [shared = shared_, file, path] {
      shared->end(file, read_first_byte(*shared->probe, path));
    }).detach();
  } catch (const Error&) {
    // No thread is left now; the file is tried again like one whose read failed.
    shared_->end(file, EAGAIN);
  }
}

std::vector<FirstByte> FirstBytes::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->ended, {});
}

}  // namespace sprat::io
