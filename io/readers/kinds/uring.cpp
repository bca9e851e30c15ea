// io_uring: many reads under way without a thread each, where the file system can do that.
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "io/readers/cached_read.hpp"
#include "io/readers/reader.hpp"

namespace sprat::io {
namespace {

using UringClock = std::chrono::steady_clock;

/// That of the read of the event, by which wake() wakes. Not the last number: that is liburing's
/// own for timeouts, which it hands to nobody.
constexpr std::uint64_t event_number = LIBURING_UDATA_TIMEOUT - 1;
/// A system call starts so many reads at once; the reads before them wait for no more company.
constexpr unsigned most_unsubmitted = 8;
constexpr std::size_t longest_call = std::size_t{1} << 30;
/// Whoever starts a long read pins, and where it is new clears, its memory, and copies into it what
/// comes through the page cache: at some GB/s that takes ten times as long as to wake another
/// thread for it. So these are handed to threads of the kernel's, of which several work at once.
constexpr std::size_t least_handed_over = std::size_t{1} << 20;

class UringReader final : public Reader {
 public:
  explicit UringReader(const ReaderOptions& options) : cached_(options) {
    require(options.depth > 0 && options.depth <= 4096, "io_uring cannot have ", options.depth,
            " reads under way; ask for 1 to 4096");
    slots_.resize(static_cast<std::size_t>(options.depth));
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      free_.push_back(slot);
    }
    // One entry more, for the event.
    const int error = -::io_uring_queue_init(static_cast<unsigned>(options.depth) + 1, &ring_, 0);
    need(error == 0, "io_uring is not to be had: ", std::strerror(error),
         "; choose the reader \"pool\"");
    // Not EFD_NONBLOCK: io_uring would tell at once that there is no event.
    event_ = ::eventfd(0, EFD_CLOEXEC);
    if (event_ < 0) {
      const int reason = errno;
      ::io_uring_queue_exit(&ring_);
      need(false, "a reader gets no descriptor: ", std::strerror(reason),
           "; raise the limit of open files (ulimit -n)");
    }
    watch_event();
  }
  ~UringReader() override {
    // The kernel writes to memory that the caller frees next. A read that is stuck holds this up as
    // it would hold up the end of the process.
    copied_.clear();
    while (free_.size() < slots_.size()) {
      wait(std::chrono::seconds(1));
      std::vector<ReadDone> unwanted;
      collect(unwanted);
    }
    ::io_uring_queue_exit(&ring_);
    ::close(event_);
  }
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  bool submit(const Read& read) override {
    if (free_.size() <= copied_.size()) {
      return false;
    }
    if (const std::optional<ReadDone> done = cached_.read(read)) {
      copied_.push_back(*done);
      return true;
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = {.read = read,
                    .asked = UringClock::now(),
                    .handed_over = hands_over_ && read.into.size() >= least_handed_over};
    start(slot);
    return true;
  }

  std::vector<ReadDone> reap(std::chrono::nanoseconds longest) override {
    std::vector<ReadDone> done = std::exchange(copied_, {});
    flush();
    collect(done);
    const auto end =
        UringClock::now() + std::min<std::chrono::nanoseconds>(longest, std::chrono::hours(24));
    while (done.empty() && !woken_) {
      const auto left = end - UringClock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        break;
      }
      wait(left);
      collect(done);
    }
    woken_ = false;
    return done;
  }

  void wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = ::write(event_, &one, sizeof one);
  }

 private:
  struct Slot {
    Read read;
    UringClock::time_point asked;
    bool handed_over = false;
  };

  void start(std::size_t slot) {
    const Read& read = slots_[slot].read;
    io_uring_sqe* const entry = next_entry();
    const auto bytes = static_cast<unsigned>(std::min(read.into.size(), longest_call));
    ::io_uring_prep_read(entry, read.descriptor, read.into.data(), bytes, read.offset);
    ::io_uring_sqe_set_data64(entry, slot);
    if (slots_[slot].handed_over) {
      ::io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
    }
    if (::io_uring_sq_ready(&ring_) >= most_unsubmitted) {
      flush();
    }
  }

  /// There is one for each slot and one for the event; those that the kernel has taken are free.
  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      flush();
      entry = ::io_uring_get_sqe(&ring_);
    }
    need(entry != nullptr, "io_uring takes no more reads; choose the reader \"pool\"");
    return entry;
  }

  void watch_event() {
    io_uring_sqe* const entry = next_entry();
    ::io_uring_prep_read(entry, event_, &event_sum_, sizeof event_sum_, 0);
    ::io_uring_sqe_set_data64(entry, event_number);
  }

  void flush() {
    if (::io_uring_sq_ready(&ring_) == 0) {
      return;
    }
    const int taken = ::io_uring_submit(&ring_);
    // The kernel may lack memory for requests just now; what it did not take stays in the ring.
    need(taken >= 0 || taken == -EAGAIN || taken == -EBUSY || taken == -EINTR,
         "io_uring refuses reads: ", std::strerror(-taken), "; choose the reader \"pool\"");
  }

  void wait(std::chrono::nanoseconds longest) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
    __kernel_timespec limit{.tv_sec = seconds.count(), .tv_nsec = (longest - seconds).count()};
    io_uring_cqe* first = nullptr;
    // Whatever it returns, what has ended is in the ring.
    ::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
  }

  void collect(std::vector<ReadDone>& done) {
    const auto now = UringClock::now();
    bool event = false;
    std::vector<std::size_t> refused;  // slots
    unsigned head = 0, count = 0;
    io_uring_cqe* completed = nullptr;
    io_uring_for_each_cqe(&ring_, head, completed) {
      ++count;
      if (completed->user_data == event_number) {
        event = true;
        continue;
      }
      const auto slot = static_cast<std::size_t>(completed->user_data);
      const int result = completed->res;
      if (result == -ECANCELED && slots_[slot].handed_over) {
        refused.push_back(slot);
        continue;
      }
      done.push_back({.tag = slots_[slot].read.tag,
                      .bytes = static_cast<std::size_t>(std::max(0, result)),
                      .error = std::max(0, -result),
                      .took = now - slots_[slot].asked});
      free_.push_back(slot);
    }
    ::io_uring_cq_advance(&ring_, count);
    // No thread is to be had (a limit of processes): whoever submits reads does it all.
    for (const std::size_t slot : refused) {
      hands_over_ = slots_[slot].handed_over = false;
      start(slot);
    }
    if (event) {
      woken_ = true;
      watch_event();
    }
  }

  CachedReads cached_;
  io_uring ring_{};
  int event_ = -1;
  std::uint64_t event_sum_ = 0;  // written by the kernel
  bool woken_ = false, hands_over_ = true;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;  // slots
  std::vector<ReadDone> copied_;   // each holds one of the free slots
};

std::string_view uring_refusal(const FileSystem& where) {
  switch (where.uring_error) {
    case 0:
      break;
    case EPERM:
    case EACCES:
      return "io_uring is denied here (EPERM): by a container's seccomp filter, or by "
             "kernel.io_uring_disabled";
    case ENOSYS:
      return "this kernel has no io_uring";
    case ENOMEM:
      return "io_uring gets no locked memory (ulimit -l)";
    default:
      return "io_uring cannot be set up here";
  }
  if (!where.tries_reads) {
    return "io_uring gives each read of this file system to a thread of the kernel's, which is no "
           "quicker than a pool";
  }
  return {};
}

}  // namespace

extern const ReaderKind uring_reader;
const ReaderKind uring_reader = {
    .name = "uring",
    .about = "io_uring: many reads under way without threads; for disks of this host.",
    .refusal = uring_refusal,
    .open = [](const ReaderOptions& options) -> std::unique_ptr<Reader> {
      return std::make_unique<UringReader>(options);
    }};

}  // namespace sprat::io
