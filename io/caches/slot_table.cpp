// A bucket is read whole, and its records are checked one by one: a torn write costs one block.
#include "io/caches/slot_table.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/base/hash.hpp"

namespace sprat::io {
namespace {

// Fields are copied as they lie in memory, and the cache never leaves its host. A host of the other
// byte order would find another magic number, and begin anew.
constexpr std::uint64_t slot_magic = 0x31454843'41435053;  // "SPCACHE1"
constexpr std::uint64_t slot_version = 1;

/// No file of blocks is larger than 2^50 bytes.
constexpr std::uint64_t most_slots = std::uint64_t{1} << 30;

struct SlotHeaderFields {
  std::uint64_t magic = 0, version = 0, block_bytes = 0, buckets = 0, bucket_slots = 0,
                checksum = 0;
};

struct SlotRecordFields {
  std::uint64_t file_high = 0, file_low = 0, block = 0;
  std::uint32_t bytes = 0, state = 0;
  std::uint64_t data_checksum = 0, generation = 0, reserved = 0, checksum = 0;
};
static_assert(sizeof(SlotRecordFields) == slot_record_bytes);

template <class Fields>
Fields fields_of(std::span<const std::byte> bytes) {
  Fields fields;
  std::memcpy(&fields, bytes.data(), sizeof fields);
  return fields;
}

/// Of all fields before the checksum, which is the last one.
template <class Fields>
std::uint64_t slot_checksum_of(const Fields& fields) {
  return XXH3_64bits_withSeed(&fields, sizeof fields - sizeof fields.checksum, slot_magic);
}

bool is_of(std::span<const std::byte> record, const BlockKey& key) {
  const auto fields = fields_of<SlotRecordFields>(record);
  return fields.file_low == key.file.low && fields.file_high == key.file.high &&
         fields.block == key.block;
}

std::span<const std::byte> record_at(std::span<const std::byte> bucket, std::size_t place) {
  return bucket.subspan(place * slot_record_bytes, slot_record_bytes);
}

/// How gladly a slot is taken for `key`; less is better. Nothing: not at all.
std::optional<int> preference(const SlotRecord& record, const BlockKey& key) {
  switch (record.state) {
    case SlotState::writing:
      // Whoever writes the same block must be noticed before another slot is taken for it.
      return record.key == key ? 0 : 3;
    case SlotState::empty:
      return 1;
    case SlotState::spare:
      return 2;
    case SlotState::whole:
      return std::nullopt;  // nothing is evicted
  }
  return std::nullopt;
}

}  // namespace

SlotTableShape slot_table_shape(std::uint64_t capacity) {
  const std::uint64_t slots = std::min(capacity / cache_block_bytes, most_slots);
  const std::uint64_t buckets = std::max<std::uint64_t>(1, slots / least_bucket_slots);
  return {.buckets = buckets, .bucket_slots = slots / buckets};
}

SlotRecordBytes encode_slot(const SlotRecord& record) {
  SlotRecordFields fields{.file_high = record.key.file.high,
                          .file_low = record.key.file.low,
                          .block = record.key.block,
                          .bytes = record.bytes,
                          .state = static_cast<std::uint32_t>(record.state),
                          .data_checksum = record.checksum,
                          .generation = record.generation,
                          .reserved = 0,
                          .checksum = 0};
  fields.checksum = slot_checksum_of(fields);
  return std::bit_cast<SlotRecordBytes>(fields);
}

SlotRecord decode_slot(std::span<const std::byte> bytes) {
  if (bytes.size() < slot_record_bytes) {
    return {};
  }
  const auto fields = fields_of<SlotRecordFields>(bytes);
  const bool valid = fields.checksum == slot_checksum_of(fields) &&
                     fields.state <= static_cast<std::uint32_t>(SlotState::spare) &&
                     fields.bytes <= cache_block_bytes;
  if (!valid) {
    return {};
  }
  return {
      .key = {.file = {.high = fields.file_high, .low = fields.file_low}, .block = fields.block},
      .bytes = fields.bytes,
      .state = static_cast<SlotState>(fields.state),
      .checksum = fields.data_checksum,
      .generation = fields.generation};
}

std::array<std::byte, slot_header_bytes> encode_slot_header(const SlotTableShape& shape) {
  SlotHeaderFields fields{.magic = slot_magic,
                          .version = slot_version,
                          .block_bytes = cache_block_bytes,
                          .buckets = shape.buckets,
                          .bucket_slots = shape.bucket_slots,
                          .checksum = 0};
  fields.checksum = slot_checksum_of(fields);
  std::array<std::byte, slot_header_bytes> bytes{};
  std::memcpy(bytes.data(), &fields, sizeof fields);
  return bytes;
}

std::optional<SlotTableShape> decode_slot_header(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(SlotHeaderFields)) {
    return std::nullopt;
  }
  const auto fields = fields_of<SlotHeaderFields>(bytes);
  const bool valid = fields.magic == slot_magic && fields.version == slot_version &&
                     fields.block_bytes == cache_block_bytes &&
                     fields.checksum == slot_checksum_of(fields);
  // Each factor is bounded before they are multiplied.
  if (!valid || fields.buckets == 0 || fields.bucket_slots == 0 ||
      fields.bucket_slots > most_bucket_slots ||
      fields.buckets > most_slots / fields.bucket_slots) {
    return std::nullopt;
  }
  return SlotTableShape{.buckets = fields.buckets, .bucket_slots = fields.bucket_slots};
}

std::uint64_t bucket_of(const BlockKey& key, const SlotTableShape& shape) {
  // Neighbours go to different buckets, else a group that is kept together would fill one.
  const std::uint64_t hash =
      mix_bits(key.file.low + mix_bits(key.file.high ^ (golden_step * (key.block + 1))));
  return hash % shape.buckets;
}

std::optional<FoundSlot> find_slot(std::span<const std::byte> bucket, const BlockKey& key) {
  for (std::size_t place = 0; (place + 1) * slot_record_bytes <= bucket.size(); ++place) {
    // The checksum is taken of records that have the key alone, so a look hardly costs more than to
    // read the bucket.
    if (is_of(record_at(bucket, place), key)) {
      const SlotRecord record = decode_slot(record_at(bucket, place));
      if (record.readable() && record.key == key) {
        return FoundSlot{.place = place, .record = record};
      }
    }
  }
  return std::nullopt;
}

std::vector<FoundSlot> slots_for(std::span<const std::byte> bucket, const BlockKey& key,
                                 std::size_t most) {
  constexpr int kinds = 4;
  std::array<std::vector<FoundSlot>, kinds> by_kind;
  for (std::size_t place = 0; (place + 1) * slot_record_bytes <= bucket.size(); ++place) {
    const SlotRecord record = decode_slot(record_at(bucket, place));
    const std::optional<int> kind = preference(record, key);
    if (kind && by_kind[static_cast<std::size_t>(*kind)].size() < most) {
      by_kind[static_cast<std::size_t>(*kind)].push_back({.place = place, .record = record});
    }
  }
  std::vector<FoundSlot> slots;
  for (const auto& kind : by_kind) {
    const std::size_t room = most - std::min(most, slots.size());
    slots.insert(slots.end(), kind.begin(),
                 kind.begin() + static_cast<std::ptrdiff_t>(std::min(room, kind.size())));
  }
  return slots;
}

}  // namespace sprat::io
