// Stores wait behind nothing that anybody waits for: a block that finds no room is offered again in
// the next epoch. Fetches have threads of their own, since a disk that writes delays those that
// read.
#include "io/caches/host_cache.hpp"

#include <exception>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

/// While another process makes the files: how often it is asked, and how long. Making room for a
/// disk's worth of blocks takes seconds.
constexpr std::chrono::milliseconds ask_again{50};
constexpr std::chrono::seconds longest_opening{30};
/// A bucket is held for microseconds, so who finds it busy comes back behind the other stores.
constexpr int most_attempts = 4;

}  // namespace

HostCache::HostCache(HostCacheOptions options) : options_(std::move(options)) {
  // Opening makes room on the disk, and reads the index: the thread that stores does it, and until
  // then nothing is there.
  writer_ = start_thread("the cache of a host", [this] { write_loop(); });
  try {
    for (int thread = 0; thread < options_.fetch_threads; ++thread) {
      fetchers_.push_back(start_thread("the cache of a host", [this] { fetch_loop(); }));
    }
  } catch (const Error& error) {
    if (fetchers_.empty()) {
      turn_off(error.what());  // nobody would tell what becomes of a fetch
    }
  }
}

HostCache::~HostCache() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stores_.clear();
  }
  work_.notify_all();
  writer_.join();
  for (std::thread& fetcher : fetchers_) {
    fetcher.join();
  }
}

std::shared_ptr<BlockStore> HostCache::files() const {
  const std::lock_guard lock(mutex_);
  return files_;
}

bool HostCache::holds(const BlockKey& key) {
  const std::shared_ptr<BlockStore> store = files();
  if (store == nullptr) {
    return false;
  }
  try {
    return store->holds(key);
  } catch (const Error& error) {
    turn_off(error.what());
    return false;
  }
}

bool HostCache::fetch(const BlockKey& key, std::size_t offset, std::span<std::byte> into,
                      Fetched told) {
  {
    const std::lock_guard lock(mutex_);
    const bool full =
        fetching_bytes_ > 0 && fetching_bytes_ + into.size() > options_.in_flight_bytes;
    if (files_ == nullptr || stopping_ || full) {
      return false;
    }
    fetches_.push_back({.key = key, .offset = offset, .into = into, .told = std::move(told)});
    fetching_bytes_ += into.size();
  }
  work_.notify_all();
  return true;
}

bool HostCache::offer(const BlockKey& key, std::span<const std::byte> block,
                      std::shared_ptr<const void> owner) {
  {
    const std::lock_guard lock(mutex_);
    if (files_ == nullptr || stopping_ ||
        storing_bytes_ + block.size() > options_.in_flight_bytes) {
      ++counts_.refused_blocks;
      return false;
    }
    stores_.push_back({.key = key, .block = block, .owner = std::move(owner)});
    storing_bytes_ += block.size();
  }
  work_.notify_all();
  return true;
}

bool HostCache::has_room(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return files_ != nullptr && storing_bytes_ + bytes <= options_.in_flight_bytes;
}

HostCacheCounts HostCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string HostCache::off_because() const {
  const std::lock_guard lock(mutex_);
  return off_because_;
}

bool HostCache::wait_opened(std::chrono::milliseconds longest) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, longest,
                           [this] { return files_ != nullptr || !off_because_.empty(); });
}

bool HostCache::wait_idle(std::chrono::milliseconds longest) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, longest, [this] {
    return fetching_bytes_ == 0 && storing_bytes_ == 0 && damaged_.empty();
  });
}

void HostCache::open_files() {
  const auto end = std::chrono::steady_clock::now() + longest_opening;
  while (true) {
    std::shared_ptr<BlockStore> store;
    try {
      store = BlockStore::try_open(options_.store);
      need(store != nullptr || std::chrono::steady_clock::now() < end,
           "another process has held the cache's files for ", longest_opening.count(),
           " s and makes none that can be used; end it, or choose another folder");
    } catch (const std::exception& error) {
      turn_off(error.what());
      return;
    }
    std::unique_lock lock(mutex_);
    if (store != nullptr) {
      files_ = std::move(store);
      changed_.notify_all();
      return;
    }
    // No process tells another that it has let go of a file: one must ask.
    if (work_.wait_for(lock, ask_again, [this] { return stopping_; })) {
      return;
    }
  }
}

void HostCache::write_loop() {
  open_files();
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !stores_.empty() || !damaged_.empty(); });
    if (stopping_) {
      return;
    }
    const std::shared_ptr<BlockStore> store = files_;
    // They stay in the list until they are dropped, for who waits until nothing is left to do.
    const std::vector<BlockKey> damaged = damaged_;
    std::optional<Store> next;
    if (!stores_.empty()) {
      next = std::move(stores_.front());
      stores_.pop_front();
    }
    lock.unlock();
    bool again = false;
    if (store != nullptr) {
      try {
        for (const BlockKey& key : damaged) {
          store->drop(key);  // if somebody is busy it is found damaged once more
        }
        again = next && carry_out(*next, *store);
      } catch (const std::exception& error) {
        turn_off(error.what());
      }
    }
    const std::size_t bytes = next && !again ? next->block.size() : 0;
    if (!again) {
      next.reset();  // the slab goes back without the lock
    }
    lock.lock();
    damaged_.erase(damaged_.begin(), damaged_.begin() + std::ssize(damaged));
    if (again) {
      stores_.push_back(std::move(*next));
    }
    storing_bytes_ -= bytes;
    changed_.notify_all();
  }
}

/// Whether it is to be tried again.
bool HostCache::carry_out(Store& store, BlockStore& files) {
  need(files.still_there(), "its files were removed");
  const StoreOutcome outcome = files.store(store.key, store.block);
  if (outcome == StoreOutcome::busy && ++store.attempts < most_attempts) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  if (outcome == StoreOutcome::stored) {
    ++counts_.stored_blocks;
    counts_.stored_bytes += store.block.size();
  } else if (outcome != StoreOutcome::was_there) {
    ++counts_.refused_blocks;
  }
  return false;
}

void HostCache::fetch_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !fetches_.empty(); });
    if (fetches_.empty()) {
      return;
    }
    const Fetch next = std::move(fetches_.front());
    fetches_.pop_front();
    lock.unlock();
    const FetchOutcome outcome = carry_out(next);
    next.told(outcome == FetchOutcome::fetched);
    lock.lock();
    counts_.fetched_bytes += outcome == FetchOutcome::fetched ? next.into.size() : 0;
    counts_.absent += outcome == FetchOutcome::absent ? 1 : 0;
    if (outcome == FetchOutcome::damaged) {
      if (counts_.damaged++ == 0) {
        log().warn(
            "the cache in {} has a block that is not as it was written: it is read from the "
            "file system; if this goes on, look after that disk",
            options_.store.folder);
      }
      damaged_.push_back(next.key);
      work_.notify_all();
    }
    fetching_bytes_ -= next.into.size();
    changed_.notify_all();
  }
}

FetchOutcome HostCache::carry_out(const Fetch& fetch) {
  const std::shared_ptr<BlockStore> store = files();
  if (store == nullptr) {
    return FetchOutcome::absent;
  }
  try {
    return store->fetch(fetch.key, fetch.offset, fetch.into);
  } catch (const std::exception& error) {
    turn_off(error.what());
    return FetchOutcome::absent;
  }
}

void HostCache::turn_off(const std::string& reason) noexcept {
  std::shared_ptr<BlockStore> closed_without_lock;
  {
    const std::lock_guard lock(mutex_);
    closed_without_lock = std::exchange(files_, nullptr);
    if (off_because_.empty()) {
      off_because_ = reason;
      log().warn("the cache in {} is off, and all is read from the file system: {}",
                 options_.store.folder, reason);
    }
  }
  changed_.notify_all();
}

}  // namespace sprat::io
