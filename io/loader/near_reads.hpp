// Requests that caches of blocks serve: which they are, and what is read for the next epoch along
// with what is wanted now.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "io/caches/block_caches.hpp"
#include "io/loader/memory_pool.hpp"
#include "io/reading/request.hpp"
#include "io/reading/scheduler.hpp"

namespace sprat::io {

/// Queues of their own: a slow file system holds back nothing that lies near. Far from the numbers
/// of storage, which go down from -1 for what is not known.
inline constexpr Target host_cache_target = std::numeric_limits<Target>::min(),
                        peers_target = host_cache_target + 1;
constexpr bool is_near(Target target) {
  return target == host_cache_target || target == peers_target;
}

struct NearReadsOptions {
  std::shared_ptr<BlockCaches> caches;  ///< Null: everything lies in the file system.
  std::shared_ptr<MemoryPool> pool;
  std::uint64_t fill_bytes = 0;  ///< Of fills under way, beside the requests' memory.
  std::uint32_t alignment = 1;   ///< Of direct reads, or 1.
  /// Called from a cache's thread when reap() has something; must not block.
  std::function<void()> notice;
};

/// One thread at a time.
class NearReads final {
 public:
  explicit NearReads(NearReadsOptions options);
  ~NearReads() { settle(); }
  /// Waits until no cache writes into the memory of a request, and gives no notice any more.
  void settle();
  NearReads(const NearReads&) = delete;
  NearReads& operator=(const NearReads&) = delete;

  bool has_caches() const { return options_.caches != nullptr; }
  /// Puts requests that one cache has as a whole into its queue.
  void place(std::vector<Request>& requests) const;

  /// Begins to bring the bytes from a cache that has them. False: they are in the file.
  bool start(const ReadStart& read, std::span<std::byte> into);
  struct Brought {
    std::uint64_t request = 0;
    BlockSource source = BlockSource::host_cache;
    std::uint64_t bytes = 0;  ///< 0: it had them no more. The file has them.
  };
  std::vector<Brought> reap();

  /// Whole blocks around what is wanted, which caches are to keep and have not: reading them in
  /// the request's place fills the cache.
  struct Fill {
    Extent extent;
    std::span<std::byte> into;  ///< At least as long.
  };
  std::optional<Fill> fill(const ReadStart& read, std::span<std::byte> wanted);
  bool is_fill(std::uint64_t request) const { return fills_.contains(request); }
  /// The read of a fill brought so many bytes. Returns how many of those that were wanted are there
  /// now: all, or none; then the request is read by itself.
  std::uint64_t filled(std::uint64_t request, std::uint64_t bytes);

  /// Bytes that came from the file: caches take of them what they are to keep.
  void offer(const Extent& extent, std::span<const std::byte> bytes,
             std::shared_ptr<const void> owner);
  void read_from_file(std::uint64_t bytes, std::chrono::nanoseconds took, std::size_t under_way);

 private:
  struct FillUnderWay {
    Extent extent;
    PooledMemory memory;
    std::span<std::byte> wanted;
    std::uint64_t at = 0;  ///< Of what is wanted, in the fill.
  };
  Extent within_file(Extent extent) const;
  BlockSource only_source(const Extent& extent) const;
  std::set<std::pair<std::uint32_t, std::uint64_t>> blocks_of(const Extent& extent) const;

  const NearReadsOptions options_;
  std::unordered_map<std::uint64_t, std::uint64_t> under_way_;  // bytes that caches bring
  std::unordered_map<std::uint64_t, FillUnderWay> fills_;       // by request
  std::set<std::pair<std::uint32_t, std::uint64_t>> filling_;   // blocks, by file
  std::unordered_set<std::uint64_t> by_themselves_;             // their fills have failed
  std::uint64_t filling_bytes_ = 0;
};

}  // namespace sprat::io
