// Blocks in a folder of a local disk, shared by the processes of a host: files, locks, no threads.
//
// Three files: a lock that says who uses the folder, the index of slots, and the slots. Nothing is
// synced: who is killed leaves what was written to the kernel, and what a machine that loses its
// power had not yet written is noticed by its checksum.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/base/owned_descriptor.hpp"
#include "io/caches/slot_table.hpp"

namespace sprat::io {

using comm::OwnedDescriptor;

struct BlockStoreOptions {
  std::string folder = {};           ///< Is made if it is not there.
  std::uint64_t capacity_bytes = 0;  ///< Of blocks; the index takes 64 bytes for each beside them.
  /// Blocks of the dataset that this host is to keep. Others give way once the folder is full.
  std::function<bool(const BlockKey&)> wants = {};
};

enum class StoreOutcome : std::uint8_t {
  stored,
  was_there,
  busy,     ///< Another process stores the block, or one of its bucket; it may be offered again.
  no_room,  ///< Its bucket is full.
};
enum class FetchOutcome : std::uint8_t {
  fetched,
  absent,
  damaged,  ///< What lies there is not what was written; drop() gives it up.
};

/// Errors of the system throw Error{unavailable} naming folder, reason and remedy. One thread at a
/// time stores; any thread fetches and asks.
class BlockStore final {
 public:
  /// Null while another process makes or clears the files: try again in a moment. Files of another
  /// capacity begin anew if nobody uses them; else they are used as they are.
  static std::unique_ptr<BlockStore> try_open(const BlockStoreOptions& options);

  bool holds(const BlockKey& key) const;
  /// Fills `into` with the block's bytes from `offset` on. Where that is not the whole block its
  /// checksum is taken at the first fetch of this process, which reads all of it.
  FetchOutcome fetch(const BlockKey& key, std::size_t offset, std::span<std::byte> into);
  /// At most cache_block_bytes.
  StoreOutcome store(const BlockKey& key, std::span<const std::byte> block);
  /// Gives up the block's slot: true unless somebody was busy.
  bool drop(const BlockKey& key);
  /// False once somebody has removed the files: what is stored would be of no use to anybody.
  bool still_there() const;
  const SlotTableShape& shape() const { return shape_; }

 private:
  using BucketBytes = std::array<std::byte, most_bucket_slots * slot_record_bytes>;
  struct Place {
    std::uint64_t bucket = 0, slot = 0;
    SlotRecord record;
  };

  BlockStore(std::string folder, OwnedDescriptor lock, OwnedDescriptor index,
             OwnedDescriptor blocks);
  bool has_header() const;
  void begin_anew();
  void sweep(const std::function<bool(const BlockKey&)>& wants, bool alone);
  std::span<const std::byte> read_bucket(std::uint64_t bucket, BucketBytes& bytes) const;
  SlotRecord read_record(std::uint64_t slot) const;
  void write_record(std::uint64_t slot, const SlotRecord& record);
  std::vector<Place> find(const BlockKey& key) const;
  bool verified(const Place& place);
  FetchOutcome fetch_whole(const Place& place, std::span<std::byte> into);

  std::string folder_;
  OwnedDescriptor lock_, index_, blocks_;
  SlotTableShape shape_;
  /// Of each slot the checksum of the block that this process has read whole and found right.
  /// Relaxed: the bytes are compared by whoever reads them, nothing else hangs on it.
  std::vector<std::atomic<std::uint64_t>> verified_;
};

/// What lies in a cache folder.
struct BlockStoreInfo {
  SlotTableShape shape = {};
  std::uint64_t blocks = 0, bytes = 0;  ///< Whole ones of the dataset that was used last.
  std::uint64_t spare_blocks = 0, spare_bytes = 0;
  std::uint64_t unfinished = 0;  ///< That somebody writes, or did not end writing.
  std::uint64_t files = 0;       ///< Whose blocks they are.
  bool in_use = false;           ///< A process has it open.
};
/// Throws Error{unavailable} if there is no cache in the folder.
BlockStoreInfo describe_block_store(const std::string& folder);
/// Indices of slots whose bytes are not what was written; reads them all.
std::vector<std::uint64_t> damaged_slots(const std::string& folder);
/// Removes the cache's files, and the folder if nothing else is in it. Bytes that became free.
/// Throws Error{unavailable} while a process uses them.
std::uint64_t clear_block_store(const std::string& folder);

}  // namespace sprat::io
