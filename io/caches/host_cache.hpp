// The cache of a host: blocks on a local disk, fetched and stored by threads of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/caches/block_store.hpp"

namespace sprat::io {

struct HostCacheOptions {
  BlockStoreOptions store = {};
  /// Bytes of fetches, and of stores, that may wait or be under way.
  std::size_t in_flight_bytes = std::size_t{64} << 20;
  int fetch_threads = 1;
};

/// Since the cache was made.
struct HostCacheCounts {
  std::uint64_t fetched_bytes = 0;
  std::uint64_t absent = 0;   ///< Fetches of what was not there any more.
  std::uint64_t damaged = 0;  ///< Blocks that were not as they had been written.
  std::uint64_t stored_blocks = 0, stored_bytes = 0;
  std::uint64_t refused_blocks = 0;  ///< Offered and not stored: no time, or no room.
};

/// Whatever goes wrong with the folder turns the cache off, with one line to the log; then it holds
/// nothing. Any thread. No call waits, but for the destructor and the waits of tests.
class HostCache final {
 public:
  /// Is told from a thread of the cache's whether `into` has the bytes.
  using Fetched = std::function<void(bool there)>;

  explicit HostCache(HostCacheOptions options);
  /// Fetches that were taken are told first. Stores that wait are given up.
  ~HostCache();
  HostCache(const HostCache&) = delete;
  HostCache& operator=(const HostCache&) = delete;

  /// A read of one bucket of the index. False while the folder is being opened.
  bool holds(const BlockKey& key);
  /// Starts to fill `into` with the block's bytes from `offset` on. False if too much is under way,
  /// or the cache is off.
  bool fetch(const BlockKey& key, std::size_t offset, std::span<std::byte> into, Fetched told);
  /// Starts to store a whole block, whose memory `owner` keeps. False if too much is under way, or
  /// the cache is off: then it may be offered again in another epoch.
  bool offer(const BlockKey& key, std::span<const std::byte> block,
             std::shared_ptr<const void> owner);

  /// Whether blocks of so many bytes would find room to be stored now.
  bool has_room(std::size_t bytes) const;
  HostCacheCounts counts() const;
  /// Why it is off; empty while it is not.
  std::string off_because() const;
  /// Whether it is open or off, at the latest after so long.
  bool wait_opened(std::chrono::milliseconds longest) const;
  /// Whether nothing waits and nothing is under way, at the latest after so long.
  bool wait_idle(std::chrono::milliseconds longest) const;

 private:
  struct Fetch {
    BlockKey key;
    std::size_t offset = 0;
    std::span<std::byte> into;
    Fetched told;
  };
  struct Store {
    BlockKey key;
    std::span<const std::byte> block;
    std::shared_ptr<const void> owner;  // shared with whoever else reads the slab
    int attempts = 0;
  };

  std::shared_ptr<BlockStore> files() const;
  void open_files();
  void write_loop();
  void fetch_loop();
  bool carry_out(Store& store, BlockStore& files);
  FetchOutcome carry_out(const Fetch& fetch);
  void turn_off(const std::string& reason) noexcept;

  const HostCacheOptions options_;
  mutable std::mutex mutex_;  // guards all below but the threads
  mutable std::condition_variable work_, changed_;
  /// Shared with calls that are looking into it while it is turned off.
  std::shared_ptr<BlockStore> files_;
  std::string off_because_;
  std::deque<Fetch> fetches_;
  std::deque<Store> stores_;
  std::vector<BlockKey> damaged_;  // to be given up by the thread that stores
  std::size_t fetching_bytes_ = 0, storing_bytes_ = 0;
  HostCacheCounts counts_;
  bool stopping_ = false;
  std::thread writer_;
  std::vector<std::thread> fetchers_;
};

}  // namespace sprat::io
