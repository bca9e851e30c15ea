#include "io/durable.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::io {
namespace {

/// Pieces that are smaller are collected, since each write is a system call. A call writes at most
/// the larger number, so that a full disk is noticed early.
constexpr std::size_t smallest_write = std::size_t{1} << 20;
constexpr std::size_t largest_write = std::size_t{64} << 20;

[[noreturn]] void fail(std::string_view what, const std::string& path, int error) {
  throw Error(ErrorCode::unavailable, describe_failure(what, path, error));
}

void tell(const StepHook& hook, std::string_view step, const std::string& path) {
  if (hook) {
    hook(step, path);
  }
}

sigset_t size_limit_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space, or choose a folder on another disk";
    case EROFS:
      return "; choose a folder that can be written to";
    case EACCES:
    case EPERM:
      return "; choose a folder that this user may write to";
    case ENOTDIR:
      return "; a part of that path is no folder: choose another one";
    case ENOENT:
      return "; is the folder there? Every rank of a job needs it, on a file system that all hosts "
             "share";
    case EFBIG:
      return "; raise the limit of file sizes (ulimit -f), or use more ranks";
    default:
      return "";
  }
}

}  // namespace

std::string describe_failure(std::string_view what, const std::string& path, int error) {
  return text("cannot ", what, " ", path, ": ", std::strerror(error), remedy(error));
}

BlockHasher::BlockHasher() : state_(XXH3_createState()) {
  need(state_ != nullptr, "no memory for a checksum");
  XXH3_64bits_reset(state_.get());
}

void BlockHasher::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Checksums are of blocks of the file, wherever the pieces that come in end.
    const std::size_t room = checked_block_bytes - bytes_ % checked_block_bytes;
    const std::span<const std::byte> piece = bytes.first(std::min(room, bytes.size()));
    XXH3_64bits_update(state_.get(), piece.data(), piece.size());
    bytes_ += piece.size();
    if (bytes_ % checked_block_bytes == 0) {
      blocks_.push_back(XXH3_64bits_digest(state_.get()));
      XXH3_64bits_reset(state_.get());
    }
    bytes = bytes.subspan(piece.size());
  }
}

std::vector<std::uint64_t> BlockHasher::finish() {
  if (bytes_ % checked_block_bytes != 0) {
    blocks_.push_back(XXH3_64bits_digest(state_.get()));
  }
  return std::move(blocks_);
}

SizeLimitFails::SizeLimitFails() noexcept {
  const sigset_t signal = size_limit_signal();
  pthread_sigmask(SIG_BLOCK, &signal, &before_);
}

SizeLimitFails::~SizeLimitFails() {
  if (sigismember(&before_, SIGXFSZ) == 1) {
    return;  // it was blocked before, so a pending one is the caller's
  }
  const sigset_t signal = size_limit_signal();
  const timespec no_time{};
  // The kernel sends SIGXFSZ to the thread that writes. It is taken while it is still blocked, or
  // it would end the process as soon as it is not.
  sigtimedwait(&signal, nullptr, &no_time);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

DurableFile::DurableFile(std::string path, StepHook hook)
    : path_(std::move(path)), hook_(std::move(hook)) {
  tell(hook_, "create", path_);
  // O_EXCL: a file that is there already is not written over.
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail("create", path_, errno);
  }
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    unlink(path_.c_str());  // it is not whole
  }
}

void DurableFile::write(std::span<const std::byte> bytes) {
  if (collected_.size() + bytes.size() < smallest_write) {
    collected_.insert(collected_.end(), bytes.begin(), bytes.end());
    return;
  }
  // What was collected comes before the new bytes, which go out from where they lie.
  write_out(collected_);
  collected_.clear();
  write_out(bytes);
}

void DurableFile::write_out(std::span<const std::byte> bytes) {
  hasher_.add(bytes);
  const SizeLimitFails limit;
  while (!bytes.empty()) {
    tell(hook_, "write", path_);
    const ssize_t wrote = ::write(descriptor_, bytes.data(), std::min(bytes.size(), largest_write));
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      fail("write to", path_, wrote == 0 ? ENOSPC : errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

FileRecord DurableFile::finish() {
  write_out(collected_);
  tell(hook_, "fsync", path_);
  if (fsync(descriptor_) != 0) {
    fail("bring to the disk", path_, errno);
  }
  // close() gives the descriptor back even if it fails, so it is never closed again. Some network
  // file systems report an error of writing only here.
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) {
    const int error = errno;
    unlink(path_.c_str());
    fail("close", path_, error);
  }
  const std::uint64_t bytes = hasher_.bytes();
  return {.bytes = bytes, .blocks = hasher_.finish()};
}

PlacedFile::PlacedFile(std::string path, StepHook hook) : path_(std::move(path)) {
  tell(hook, "open", path_);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail("open", path_, errno);
  }
}

PlacedFile::~PlacedFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void PlacedFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const SizeLimitFails limit;
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(descriptor_, bytes.data(), std::min(bytes.size(), largest_write),
                                 static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      fail("write to", path_, wrote == 0 ? ENOSPC : errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
}

void PlacedFile::finish() {
  if (fsync(descriptor_) != 0) {
    fail("bring to the disk", path_, errno);
  }
  if (close(std::exchange(descriptor_, -1)) != 0) {
    fail("close", path_, errno);
  }
}

void make_folder(const std::string& path, const StepHook& hook) {
  tell(hook, "make folder", path);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail("make folder", path, error.value());
  }
}

void write_file(const std::string& path, std::string_view text, const StepHook& hook) {
  DurableFile file(path, hook);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

void set_length(const std::string& path, std::uint64_t bytes, const StepHook& hook) {
  tell(hook, "set the length", path);
  const SizeLimitFails limit;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    fail("open", path, errno);
  }
  const auto length = static_cast<off_t>(bytes);
  int error = 0;
  do {
    error = fallocate(descriptor, 0, 0, length) == 0 ? 0 : errno;
  } while (error == EINTR);
  // Where no room can be set aside (NFS before 4.2, for one), the length alone is set. That also
  // cuts a longer file.
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
    error = ftruncate(descriptor, length) == 0 ? 0 : errno;
  }
  if (close(descriptor) != 0 && error == 0) {
    error = errno;
  }
  if (error != 0) {
    fail("set the length of", path, error);
  }
}

void sync_folder(const std::string& path, const StepHook& hook) {
  tell(hook, "fsync folder", path);
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    fail("open folder", path, errno);
  }
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  // A file system that cannot sync a folder says EINVAL. It orders changes of names itself, so that
  // is no error.
  if (error != 0 && error != EINVAL) {
    fail("bring to the disk the folder", path, error);
  }
}

void rename_over(const std::string& from, const std::string& to, const StepHook& hook) {
  tell(hook, "rename", to);
  if (rename(from.c_str(), to.c_str()) == 0) {
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    fail("rename " + from + " to", to, errno);
  }
  // rename() replaces no folder that holds something. Exchanging the two names does, in one step,
  // so a crash leaves the old one or the new one in its place.
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  rename_by_turns(from, to, hook);  // this file system cannot exchange names
}

void rename_by_turns(const std::string& from, const std::string& to, const StepHook& hook) {
  const std::string aside = from + std::string(replaced_ending);
  tell(hook, "rename aside", to);
  if (rename(to.c_str(), aside.c_str()) != 0) {
    fail("rename " + to + " to", aside, errno);
  }
  try {
    tell(hook, "rename into its place", to);
    if (rename(from.c_str(), to.c_str()) != 0) {
      fail("rename " + from + " to", to, errno);
    }
  } catch (...) {
    // The old folder goes back; if that fails as well, the first error says more.
    static_cast<void>(rename(aside.c_str(), to.c_str()));
    throw;
  }
  try {
    tell(hook, "rename what was replaced", from);
    if (rename(aside.c_str(), from.c_str()) != 0) {
      fail("rename " + aside + " to", from, errno);
    }
  } catch (...) {
    if (rename(to.c_str(), from.c_str()) == 0) {
      static_cast<void>(rename(aside.c_str(), to.c_str()));
    }
    throw;
  }
}

void point_link(const std::string& path, const std::string& target, const std::string& spare,
                const StepHook& hook) {
  tell(hook, "link", spare);
  // A link cannot be changed: a new one is made beside it and renamed over it, which is one step.
  if (symlink(target.c_str(), spare.c_str()) != 0) {
    fail("make the link", spare, errno);
  }
  try {
    tell(hook, "rename link", path);
    if (rename(spare.c_str(), path.c_str()) != 0) {
      fail("rename " + spare + " to", path, errno);
    }
  } catch (...) {
    unlink(spare.c_str());
    throw;
  }
}

void remove_all(const std::string& path, const StepHook& hook) noexcept {
  try {
    tell(hook, "remove", path);
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) {
      log().warn("{}", describe_failure("remove", path, error.value()));
    }
  } catch (const std::exception& error) {
    log().warn("cannot remove {}: {}", path, error.what());
  }
}

}  // namespace sprat::io
