// A ring between whoever drives a rank and one thread that writes.
//
// Programs wait for results, and digests must not make them wait longer: so a full ring loses
// records, which who appends counts and says, instead of holding the call until a disk is done.
#include "comm/status/call_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::comm::status {
namespace {

// Some 30,000 calls, or the chunks of 32 GiB of results: a disk may stand still for a while.
constexpr std::size_t room_bytes = std::size_t{4} << 20;
// What a process that is killed may lose of its last calls.
constexpr std::chrono::milliseconds longest_kept{100};

int make_file(const std::string& folder, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  need(!error, "SPRAT_DIGESTS: ", folder, ": ", error.message());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  need(file >= 0, "SPRAT_DIGESTS: ", path, ": ", std::strerror(errno));
  return file;
}

}  // namespace

CallLog::CallLog(const std::string& folder, const std::string& name)
    : folder_(folder),
      name_(name),
      file_(make_file(folder, folder + "/" + name + ".digests")),
      room_(room_bytes) {
  try {
    thread_ = start_thread("the thread that writes digests", [this] { write_out(); });
  } catch (const Error&) {
    ::close(file_);
    throw;
  }
}

CallLog::~CallLog() {
  if (!mark_.here()) {
    // A child of fork(): the thread is its parent's. To destroy the object would end the process,
    // to join it would wait for ever.
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  ::close(file_);
}

bool CallLog::append(std::span<const std::byte> head, std::span<const std::byte> rest) noexcept {
  const std::uint64_t begin = appended_.load(std::memory_order_relaxed);
  // Acquire: the thread has read what lay in this room before it gave it back.
  const std::uint64_t filled = begin - written_.load(std::memory_order_acquire);
  if (head.size() + rest.size() > room_.size() - filled) {
    return false;
  }
  std::uint64_t at = begin;
  for (const std::span<const std::byte> part : {head, rest}) {
    const auto place = static_cast<std::size_t>(at % room_.size());
    const std::size_t first = std::min(part.size(), room_.size() - place);
    if (first > 0) {
      std::memcpy(room_.data() + place, part.data(), first);
    }
    if (first < part.size()) {
      std::memcpy(room_.data(), part.data() + first, part.size() - first);
    }
    at += part.size();
  }
  appended_.store(at, std::memory_order_release);
  // Only when half is full, once: otherwise the thread looks by itself soon, and waking it would
  // cost each call a system call. Without the mutex, for nobody who drives may wait for it: a wake
  // that comes too early is made up for by the thread's next look.
  const std::size_t half = room_.size() / 2;
  if (filled < half && filled + (at - begin) >= half) {
    wake_.notify_one();
  }
  return true;
}

void CallLog::write_out() noexcept {
  for (;;) {
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, longest_kept, [this] {
        return ending_ || appended_.load(std::memory_order_relaxed) -
                                  written_.load(std::memory_order_relaxed) >=
                              room_.size() / 2;
      });
      last = ending_;
    }
    write_up_to(appended_.load(std::memory_order_acquire));
    if (last) {
      return;
    }
  }
}

void CallLog::write_up_to(std::uint64_t end) noexcept {
  std::uint64_t at = written_.load(std::memory_order_relaxed);
  while (at < end) {
    const auto place = static_cast<std::size_t>(at % room_.size());
    const std::size_t bytes = std::min(static_cast<std::size_t>(end - at), room_.size() - place);
    // What cannot be written is dropped, so that the ring does not fill up for ever: the file ends
    // there, and says so by having no end.
    const ssize_t done =
        broken_ ? static_cast<ssize_t>(bytes) : ::write(file_, room_.data() + place, bytes);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done < 0) {
      broken_ = true;
      log().error("SPRAT_DIGESTS: {}/{}.digests: {}; digests end here, the job goes on", folder_,
                  name_, std::strerror(errno));
      continue;
    }
    at += static_cast<std::uint64_t>(done);
    written_.store(at, std::memory_order_release);
  }
}

}  // namespace sprat::comm::status
