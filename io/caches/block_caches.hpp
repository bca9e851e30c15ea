// All caches of a loader: where the bytes that it wants lie nearest, and how it gets them.
//
// For each request: lookup() cuts it by source. What lies in a cache is begun with start(), and
// reap() tells when it is there; if it turns out not to be, or start() has no room, the loader
// reads what from_file() says. Of what it has read it offers all: whole blocks are taken.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/caches/block_peers.hpp"
#include "io/caches/host_cache.hpp"
#include "io/caches/owners.hpp"
#include "io/caches/peer_blocks.hpp"
#include "io/caches/source_choice.hpp"
#include "io/dataset/extent.hpp"

namespace sprat::io {

struct BlockCachesOptions {
  std::string folder;  ///< Of a local disk.
  std::uint64_t capacity_bytes = 0;
  /// Of all sources of the loader; extents name them by their index here.
  std::vector<CachedFile> files;
  /// Null: this host keeps for itself.
  std::shared_ptr<BlockPeers> peers;
  PeerBlocksOptions peer_options;
  std::size_t storing_bytes = std::size_t{64} << 20;  ///< Offered, and not yet on the disk.
};

/// A part of a request that comes from one source.
struct CachePiece {
  Extent extent;
  BlockSource source = BlockSource::file_system;
  /// Of the file system, where a cache is to keep it and has not: the same, as whole blocks.
  /// Reading this instead, and offering it, fills the cache.
  std::optional<Extent> fills;
};

struct CacheDone {
  std::uint64_t tag = 0;
  BlockSource source = BlockSource::host_cache;
  bool there = false;  ///< `into` has the bytes; else the file has them.
};

struct CacheTraffic {
  HostCacheCounts host_cache;
  PeerCounts peers;
  std::string off_because;  ///< Empty while the cache works.
};

/// Any thread. No call waits, but for the destructor.
class BlockCaches final {
 public:
  /// Throws Error{invalid_argument} for a capacity of less than a block.
  explicit BlockCaches(BlockCachesOptions options);
  /// Reads that were begun are told first; nobody reaps them.
  ~BlockCaches();
  BlockCaches(const BlockCaches&) = delete;
  BlockCaches& operator=(const BlockCaches&) = delete;

  /// Pieces that follow each other and are the extent, which lies in its file.
  std::vector<CachePiece> lookup(const Extent& extent);
  /// The extent as a piece of the file system.
  CachePiece from_file(const Extent& extent);
  /// Begins to fill `into`, as long as the piece's extent. False if there is no room now.
  bool start(const CachePiece& piece, std::span<std::byte> into, std::uint64_t tag);
  std::vector<CacheDone> reap();
  /// Called from now on when reap() has something new, from a thread of a cache's: it must not
  /// block. Once set_notice() has returned, the one before is not called any more.
  void set_notice(std::function<void()> notice);
  /// What was read from the file system; `owner` keeps the memory, for a while longer than this
  /// call. Whole blocks of it that a host is to keep and has not go to it.
  void offer(const Extent& extent, std::span<const std::byte> bytes,
             std::shared_ptr<const void> owner);
  /// Whether so many bytes could be offered now. What is offered beyond that is lost.
  bool has_room(std::uint64_t bytes) const { return cache_->has_room(bytes); }
  /// A read of the file system ended, while so many were under way.
  void read_from_file_system(std::uint64_t bytes, std::chrono::nanoseconds took,
                             std::size_t under_way);

  CacheTraffic traffic() const;
  std::uint64_t file_bytes(std::uint32_t file) const { return options_.files.at(file).bytes; }
  /// For tests: whether the folder is open and all that was offered is stored.
  bool wait_idle(std::chrono::milliseconds longest) const;

 private:
  struct Reading;
  /// What is known of a block without asking another host.
  struct Whereabouts {
    BlockPlaces places = {};
    bool missing = false;  // at its owner: whoever reads it can fill the cache
    friend bool operator==(const Whereabouts&, const Whereabouts&) = default;
  };

  bool keeps_here(const BlockKey& key) const;
  std::uint64_t kept_bytes(const BlockKey& key) const;
  Whereabouts locate(const BlockKey& key);
  bool begin(const std::shared_ptr<Reading>& reading, const BlockKey& key, std::size_t offset,
             std::span<std::byte> into);
  void ended(Reading& reading, AskOutcome outcome);
  bool is_lacking(const BlockKey& key) const;
  void absent_at_owner(const BlockKey& key);

  const BlockCachesOptions options_;
  const std::size_t here_;
  const BlockOwners owners_;
  const KeepRule rule_;
  const std::map<FileKey, std::uint64_t> file_bytes_;
  std::mutex notice_mutex_;  // guards notice_, also while it is called
  std::function<void()> notice_;
  mutable std::mutex mutex_;  // guards the four below
  SourceChoice choice_;
  std::vector<CacheDone> done_;
  /// Blocks that their owners said they lack: given to them once they have been read.
  std::set<std::pair<FileKey, std::uint64_t>> lacking_;
  std::size_t under_way_[block_sources] = {};
  // The peers are served from the cache, so they end first.
  std::unique_ptr<HostCache> cache_;
  std::unique_ptr<PeerBlocks> peers_;
};

}  // namespace sprat::io
