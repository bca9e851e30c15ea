// The index of a host cache: which slot of its file holds which block. Pure: bytes in, values out.
//
// A page with the header, then a record of 64 bytes for each slot. Slots come in buckets, and a
// block may lie in one bucket only, so a look at one bucket answers for it. A record has a checksum
// of its own and one of the block's bytes: a record that was written in part is an empty slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/caches/block.hpp"

namespace sprat::io {

inline constexpr std::size_t slot_header_bytes = 4096;
inline constexpr std::size_t slot_record_bytes = 64;
/// Larger buckets fill more evenly, smaller ones are read faster: with 256 slots a full cache
/// leaves one in forty empty, and a look reads 16 KiB. A table of fewer slots is one bucket.
inline constexpr std::uint64_t least_bucket_slots = 256;
inline constexpr std::uint64_t most_bucket_slots = 2 * least_bucket_slots - 1;

/// How many slots, in how many buckets.
struct SlotTableShape {
  std::uint64_t buckets = 0, bucket_slots = 0;

  std::uint64_t slots() const { return buckets * bucket_slots; }
  std::uint64_t index_bytes() const { return slot_header_bytes + slots() * slot_record_bytes; }
  std::uint64_t data_bytes() const { return slots() * cache_block_bytes; }

  friend bool operator==(const SlotTableShape&, const SlotTableShape&) = default;
};
/// The largest with data_bytes() <= capacity; no slots for less than a block.
SlotTableShape slot_table_shape(std::uint64_t capacity);

enum class SlotState : std::uint32_t {
  empty,
  writing,  ///< Somebody writes the block, or died while doing so.
  whole,
  spare,  ///< Whole, but of files that are none of the dataset's: others may take the slot.
};

struct SlotRecord {
  BlockKey key = {};
  std::uint32_t bytes = 0;
  SlotState state = SlotState::empty;
  std::uint64_t checksum = 0;    ///< XXH3-64 of the block.
  std::uint64_t generation = 0;  ///< One more each time the slot is given to another block.

  bool readable() const { return state == SlotState::whole || state == SlotState::spare; }
  friend bool operator==(const SlotRecord&, const SlotRecord&) = default;
};

using SlotRecordBytes = std::array<std::byte, slot_record_bytes>;
SlotRecordBytes encode_slot(const SlotRecord& record);
/// Of slot_record_bytes. What is no record is an empty slot.
SlotRecord decode_slot(std::span<const std::byte> bytes);

std::array<std::byte, slot_header_bytes> encode_slot_header(const SlotTableShape& shape);
/// Nothing if it is no header, or one of another version, or of slots that no file can have.
std::optional<SlotTableShape> decode_slot_header(std::span<const std::byte> bytes);

/// Which bucket a block may lie in.
std::uint64_t bucket_of(const BlockKey& key, const SlotTableShape& shape);

/// A slot of a bucket by its place there.
struct FoundSlot {
  std::size_t place = 0;
  SlotRecord record;
};
/// The readable slot of that block among a bucket's records.
std::optional<FoundSlot> find_slot(std::span<const std::byte> bucket, const BlockKey& key);
/// Where a block may be written, the best first, at most `most`: the slot in which it was being
/// written, empty ones, spare ones, and others in which somebody was writing, who may have died.
std::vector<FoundSlot> slots_for(std::span<const std::byte> bucket, const BlockKey& key,
                                 std::size_t most);

}  // namespace sprat::io
