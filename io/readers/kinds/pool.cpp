// Threads that call pread: for file systems whose reads always wait, and where io_uring is denied.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/thread.hpp"
#include "io/readers/cached_read.hpp"
#include "io/readers/reader.hpp"

namespace sprat::io {
namespace {

using PoolClock = std::chrono::steady_clock;

class PoolReader final : public Reader {
 public:
  explicit PoolReader(const ReaderOptions& options) : options_(options), cached_(options) {
    require(options.depth > 0 && options.threads > 0, "a pool of ", options.threads,
            " threads for ", options.depth, " reads reads nothing; give it one of each at least");
  }
  ~PoolReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    work_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  PoolReader(const PoolReader&) = delete;
  PoolReader& operator=(const PoolReader&) = delete;

  bool submit(const Read& read) override {
    if (under_way_ >= options_.depth) {
      return false;
    }
    if (const std::optional<ReadDone> done = cached_.read(read)) {
      copied_.push_back(*done);
      ++under_way_;
      return true;
    }
    grow();
    bool idle = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({.read = read, .asked = PoolClock::now()});
      idle = idle_ > 0;
    }
    ++under_way_;
    // A thread that is busy looks into the queue before it sleeps.
    if (idle) {
      work_.notify_one();
    }
    return true;
  }

  std::vector<ReadDone> reap(std::chrono::nanoseconds longest) override {
    std::vector<ReadDone> done = std::exchange(copied_, {});
    std::unique_lock lock(mutex_);
    if (done.empty() && done_.empty() && !woken_) {
      // Some waits would overflow the clock.
      const auto wait = std::min<std::chrono::nanoseconds>(longest, std::chrono::hours(24));
      ended_.wait_for(lock, wait, [&] { return !done_.empty() || woken_; });
    }
    woken_ = false;
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
    under_way_ -= static_cast<int>(done.size());
    return done;
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    ended_.notify_one();
  }

 private:
  struct Asked {
    Read read;
    PoolClock::time_point asked;
  };

  /// One thread more as long as reads have to wait for one: none is made for what is cached. Where
  /// no more is to be had, those that are there do all of it.
  void grow() {
    if (std::cmp_less(threads_.size(), most_threads_)) {
      try {
        threads_.push_back(start_thread("a thread that reads files", [this] { run(); }));
      } catch (const std::exception&) {
        if (threads_.empty()) {
          throw;
        }
        most_threads_ = static_cast<int>(threads_.size());
      }
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      --idle_;
      if (stopping_) {
        return;
      }
      const Asked asked = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const ReadDone done = read_now(asked);
      lock.lock();
      const bool first = done_.empty();
      done_.push_back(done);
      if (first) {
        ended_.notify_one();
      }
    }
  }

  static ReadDone read_now(const Asked& asked) {
    const Read& read = asked.read;
    const ssize_t got = ::pread(read.descriptor, read.into.data(), read.into.size(),
                                static_cast<off_t>(read.offset));
    const int error = got < 0 ? errno : 0;
    return {.tag = read.tag,
            .bytes = got < 0 ? 0 : static_cast<std::size_t>(got),
            .error = error,
            .took = PoolClock::now() - asked.asked};
  }

  const ReaderOptions options_;
  CachedReads cached_;
  std::vector<ReadDone> copied_;  // the caller's own, as the next one
  int under_way_ = 0;             // taken and not reaped
  int most_threads_ = std::min(options_.threads, options_.depth);
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // guards all below
  std::condition_variable work_, ended_;
  std::deque<Asked> queue_;
  std::vector<ReadDone> done_;
  int idle_ = 0;
  bool woken_ = false, stopping_ = false;
};

}  // namespace

extern const ReaderKind pool_reader;
const ReaderKind pool_reader = {
    .name = "pool",
    .about = "Threads that read and wait: works everywhere, and is as quick as any on Lustre.",
    .refusal = [](const FileSystem&) -> std::string_view { return {}; },
    .open = [](const ReaderOptions& options) -> std::unique_ptr<Reader> {
      return std::make_unique<PoolReader>(options);
    }};

}  // namespace sprat::io
