// A block has one owner, which everybody computes alike, so nothing is agreed upon. What an owner
// says it lacks is remembered for a while: whoever reads that block next from the file gives it to
// it.
#include "io/caches/block_caches.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

using CacheClock = std::chrono::steady_clock;

/// Of blocks that owners lack, as many are remembered as requests may be under way.
constexpr std::size_t most_lacking = 4096;

std::uint64_t blocks_of(const std::vector<CachedFile>& files) {
  std::uint64_t blocks = 0;
  for (const CachedFile& file : files) {
    blocks += block_count(file.bytes);
  }
  return blocks;
}

BlockOwners owners_of(const BlockPeers* peers) {
  const std::string alone = "this host";
  return peers == nullptr ? BlockOwners({&alone, 1}, 0)
                          : BlockOwners(peers->hosts(), peers->here());
}

std::map<FileKey, std::uint64_t> lengths_of(const std::vector<CachedFile>& files) {
  std::map<FileKey, std::uint64_t> lengths;
  for (const CachedFile& file : files) {
    lengths[file.key] = file.bytes;
  }
  return lengths;
}

std::size_t source_index(BlockSource source) { return static_cast<std::size_t>(source); }

/// All hosts together keep what they have room for; each has as much.
KeepRule rule_of(const BlockCachesOptions& options, std::uint64_t hosts) {
  const std::uint64_t slots = slot_table_shape(options.capacity_bytes).slots();
  return KeepRule(slots * hosts, blocks_of(options.files));
}

}  // namespace

/// A piece whose blocks are on their way.
struct BlockCaches::Reading {
  std::uint64_t tag = 0, bytes = 0;
  BlockSource source = BlockSource::host_cache;
  CacheClock::time_point begin;
  std::size_t beside = 1;  ///< Reads of this source that were under way, this one too.
  std::size_t left = 0;    ///< Blocks; guarded by the caches' mutex, as what follows.
  /// The worst of its blocks'.
  AskOutcome outcome = AskOutcome::fetched;
};

BlockCaches::BlockCaches(BlockCachesOptions options)
    : options_(std::move(options)),
      here_(options_.peers == nullptr ? 0 : options_.peers->here()),
      owners_(owners_of(options_.peers.get())),
      rule_(rule_of(options_, owners_.hosts())),
      file_bytes_(lengths_of(options_.files)) {
  require(options_.capacity_bytes >= cache_block_bytes, "a cache of ", options_.capacity_bytes,
          " bytes in ", options_.folder, " holds no block of ", cache_block_bytes,
          " bytes; allow it more, or use none");
  const auto bytes = [this](const BlockKey& key) { return kept_bytes(key); };
  cache_ = std::make_unique<HostCache>(
      HostCacheOptions{.store = {.folder = options_.folder,
                                 .capacity_bytes = options_.capacity_bytes,
                                 .wants = [bytes](const BlockKey& key) { return bytes(key) > 0; }},
                       .in_flight_bytes = options_.storing_bytes});
  if (options_.peers != nullptr) {
    peers_ = std::make_unique<PeerBlocks>(*options_.peers, *cache_, bytes, options_.peer_options);
  }
}

BlockCaches::~BlockCaches() {
  peers_.reset();
  cache_.reset();
}

bool BlockCaches::keeps_here(const BlockKey& key) const {
  return rule_.keeps(key) && owners_.owner(key) == here_;
}

std::uint64_t BlockCaches::kept_bytes(const BlockKey& key) const {
  const auto file = file_bytes_.find(key.file);
  return file != file_bytes_.end() && keeps_here(key) ? bytes_of_block(file->second, key.block) : 0;
}

bool BlockCaches::is_lacking(const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  return lacking_.contains({key.file, key.block});
}

BlockCaches::Whereabouts BlockCaches::locate(const BlockKey& key) {
  // Blocks that other hosts own now may lie here, too, so the disk is asked in any case.
  const bool here = cache_->holds(key);
  if (!rule_.keeps(key)) {
    return {.places = {.host_cache = here, .peer = false}, .missing = false};
  }
  const std::size_t owner = owners_.owner(key);
  if (owner == here_) {
    return {.places = {.host_cache = here, .peer = false}, .missing = !here};
  }
  // If its owner has just said that it lacks the block, that is to be read and given to it.
  const bool lacking = is_lacking(key);
  return {.places = {.host_cache = here, .peer = !lacking && peers_->may_ask(owner)},
          .missing = lacking};
}

std::vector<CachePiece> BlockCaches::lookup(const Extent& extent) {
  const CachedFile& file = options_.files.at(extent.file);
  require(extent.offset + extent.bytes <= file.bytes, "bytes ", extent.offset, " to ",
          extent.offset + extent.bytes, " were looked for in file ", extent.file, ", which has ",
          file.bytes);
  std::vector<CachePiece> pieces;
  std::optional<Whereabouts> last;
  for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes;) {
    const std::uint64_t block = at / cache_block_bytes;
    const std::uint64_t end =
        std::min((block + 1) * cache_block_bytes, extent.offset + extent.bytes);
    const Whereabouts found = locate({.file = file.key, .block = block});
    if (last != found) {
      last = found;
      const std::lock_guard lock(mutex_);
      pieces.push_back({.extent = {.file = extent.file, .offset = at, .bytes = 0},
                        .source = choice_.choose(found.places),
                        .fills = std::nullopt});
    }
    CachePiece& piece = pieces.back();
    piece.extent.bytes += end - at;
    if (found.missing) {
      const std::uint64_t begin = piece.extent.offset / cache_block_bytes * cache_block_bytes;
      const std::uint64_t whole_end = std::min((block + 1) * cache_block_bytes, file.bytes);
      piece.fills = Extent{.file = extent.file, .offset = begin, .bytes = whole_end - begin};
    }
    at = end;
  }
  return pieces;
}

CachePiece BlockCaches::from_file(const Extent& extent) {
  const CachedFile& file = options_.files.at(extent.file);
  CachePiece piece{.extent = extent, .source = BlockSource::file_system, .fills = std::nullopt};
  const std::uint64_t first = extent.offset / cache_block_bytes;
  const std::uint64_t blocks = block_count(extent.offset + extent.bytes) - first;
  for (std::uint64_t block = first; block < first + blocks && !piece.fills; ++block) {
    if (locate({.file = file.key, .block = block}).missing) {
      const std::uint64_t begin = first * cache_block_bytes;
      const std::uint64_t end = std::min(begin + blocks * cache_block_bytes, file.bytes);
      piece.fills = Extent{.file = extent.file, .offset = begin, .bytes = end - begin};
    }
  }
  return piece;
}

bool BlockCaches::start(const CachePiece& piece, std::span<std::byte> into, std::uint64_t tag) {
  require(piece.source != BlockSource::file_system && into.size() == piece.extent.bytes,
          "a piece of ", piece.extent.bytes, " bytes was to be brought from a cache into ",
          into.size(), "; pieces of the file system are read from the file");
  // Shared by the answers for its blocks, the last of which tells of it.
  auto reading = std::make_shared<Reading>();
  const std::uint64_t first = piece.extent.offset / cache_block_bytes;
  const std::uint64_t last = (piece.extent.offset + piece.extent.bytes - 1) / cache_block_bytes;
  {
    const std::lock_guard lock(mutex_);
    *reading = {.tag = tag,
                .bytes = into.size(),
                .source = piece.source,
                .begin = CacheClock::now(),
                .beside = ++under_way_[source_index(piece.source)],
                .left = last - first + 1};
  }
  const FileKey& file = options_.files.at(piece.extent.file).key;
  std::uint64_t at = piece.extent.offset;
  for (std::uint64_t block = first; block <= last; ++block) {
    const std::uint64_t end =
        std::min((block + 1) * cache_block_bytes, piece.extent.offset + piece.extent.bytes);
    const auto part = into.subspan(at - piece.extent.offset, end - at);
    const bool begun = begin(reading, {.file = file, .block = block}, at % cache_block_bytes, part);
    if (!begun && block == first) {
      const std::lock_guard lock(mutex_);
      --under_way_[source_index(piece.source)];
      return false;
    }
    if (!begun) {
      // What was begun writes into the memory: the piece ends when that has.
      ended(*reading, AskOutcome::failed);
    }
    at = end;
  }
  return true;
}

bool BlockCaches::begin(const std::shared_ptr<Reading>& reading, const BlockKey& key,
                        std::size_t offset, std::span<std::byte> into) {
  if (reading->source == BlockSource::host_cache) {
    return cache_->fetch(key, offset, into, [this, reading](bool there) {
      ended(*reading, there ? AskOutcome::fetched : AskOutcome::absent);
    });
  }
  return peers_ != nullptr && peers_->ask(owners_.owner(key), key, offset, into,
                                          [this, reading, key](AskOutcome outcome) {
                                            if (outcome == AskOutcome::absent) {
                                              absent_at_owner(key);
                                            }
                                            ended(*reading, outcome);
                                          });
}

void BlockCaches::ended(Reading& reading, AskOutcome outcome) {
  {
    const std::lock_guard lock(mutex_);
    reading.outcome = std::max(reading.outcome, outcome);
    if (--reading.left > 0) {
      return;
    }
    --under_way_[source_index(reading.source)];
    const auto took = CacheClock::now() - reading.begin;
    if (reading.outcome == AskOutcome::fetched) {
      choice_.measured(reading.source, reading.bytes, took, reading.beside);
    } else if (reading.outcome == AskOutcome::failed) {
      choice_.failed(reading.source, took);
    }  // what an owner lacks says nothing about how fast it is
    done_.push_back({.tag = reading.tag,
                     .source = reading.source,
                     .there = reading.outcome == AskOutcome::fetched});
  }
  const std::lock_guard lock(notice_mutex_);
  if (notice_) {
    notice_();
  }
}

void BlockCaches::set_notice(std::function<void()> notice) {
  const std::lock_guard lock(notice_mutex_);
  notice_ = std::move(notice);
}

void BlockCaches::absent_at_owner(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  if (lacking_.size() >= most_lacking) {
    lacking_.erase(lacking_.begin());
  }
  lacking_.insert({key.file, key.block});
}

std::vector<CacheDone> BlockCaches::reap() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void BlockCaches::offer(const Extent& extent, std::span<const std::byte> bytes,
                        std::shared_ptr<const void> owner) {
  const CachedFile& file = options_.files.at(extent.file);
  const std::uint64_t end = extent.offset + bytes.size();
  for (std::uint64_t block = (extent.offset + cache_block_bytes - 1) / cache_block_bytes;
       block < block_count(file.bytes); ++block) {
    const std::uint64_t begin = block * cache_block_bytes;
    const std::uint64_t length = bytes_of_block(file.bytes, block);
    if (begin + length > end) {
      return;
    }
    const BlockKey key{.file = file.key, .block = block};
    const auto whole = bytes.subspan(begin - extent.offset, length);
    if (keeps_here(key)) {
      if (!cache_->holds(key)) {
        cache_->offer(key, whole, owner);
      }
      continue;
    }
    std::unique_lock lock(mutex_);
    const bool lacks = lacking_.erase({key.file, key.block}) > 0;
    lock.unlock();
    if (lacks && peers_ != nullptr) {
      peers_->give(owners_.owner(key), key, whole, owner);
    }
  }
}

void BlockCaches::read_from_file_system(std::uint64_t bytes, std::chrono::nanoseconds took,
                                        std::size_t under_way) {
  const std::lock_guard lock(mutex_);
  choice_.measured(BlockSource::file_system, bytes, took, under_way);
}

CacheTraffic BlockCaches::traffic() const {
  return {.host_cache = cache_->counts(),
          .peers = peers_ == nullptr ? PeerCounts{} : peers_->counts(),
          .off_because = cache_->off_because()};
}

bool BlockCaches::wait_idle(std::chrono::milliseconds longest) const {
  return cache_->wait_opened(longest) && cache_->wait_idle(longest);
}

}  // namespace sprat::io
