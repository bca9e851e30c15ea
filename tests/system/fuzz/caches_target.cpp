// The index of a host's cache, and what hosts that share blocks send each other: what is no header
// is refused, what is no record is an empty slot, and nothing points outside.
#include <algorithm>
#include <cstring>
#include <vector>

#include "io/caches/peer_wire.hpp"
#include "io/caches/slot_table.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

/// Inputs have no right checksums by chance, so each is tried once more as fields that have them.
bool run_header(std::span<const std::byte> input) {
  auto shape = io::decode_slot_header(input);
  if (!shape && input.size() >= 16) {
    io::SlotTableShape given;
    std::memcpy(&given.buckets, input.data(), 8);
    std::memcpy(&given.bucket_slots, input.data() + 8, 8);
    shape = io::decode_slot_header(io::encode_slot_header(given));
    expect(!shape || *shape == given, "a shape comes back");
  }
  if (!shape) {
    return false;
  }
  expect(shape->slots() > 0 && shape->slots() <= std::uint64_t{1} << 30, "slots are bounded");
  expect(shape->slots() / shape->buckets == shape->bucket_slots, "their number does not wrap");
  const std::uint64_t bucket =
      io::bucket_of({.file = {.high = shape->buckets, .low = 3}, .block = input.size()}, *shape);
  expect(bucket < shape->buckets, "a block lies in a bucket");
  return true;
}

bool run_bucket(std::span<const std::byte> input) {
  // The input's records as they are, and behind them the same fields with right checksums.
  std::vector<std::byte> bucket(input.begin(), input.end());
  for (std::size_t at = 0; at + 40 <= input.size(); at += 40) {
    io::SlotRecord record;
    std::memcpy(&record.key.file.high, input.data() + at, 8);
    std::memcpy(&record.key.file.low, input.data() + at + 8, 8);
    std::memcpy(&record.key.block, input.data() + at + 16, 8);
    std::memcpy(&record.bytes, input.data() + at + 24, 4);
    std::uint32_t state = 0;
    std::memcpy(&state, input.data() + at + 28, 4);
    record.state = static_cast<io::SlotState>(state);
    std::memcpy(&record.generation, input.data() + at + 32, 8);
    bucket.resize(bucket.size() / io::slot_record_bytes * io::slot_record_bytes);
    const io::SlotRecordBytes one = io::encode_slot(record);
    bucket.insert(bucket.end(), one.begin(), one.end());
  }
  const std::size_t places = bucket.size() / io::slot_record_bytes;
  std::size_t records = 0;
  for (std::size_t place = 0; place < places; ++place) {
    const io::SlotRecord record =
        io::decode_slot(std::span<const std::byte>(bucket).subspan(place * io::slot_record_bytes));
    expect(record.bytes <= io::cache_block_bytes && record.state <= io::SlotState::spare,
           "a record is one that can be");
    records += record.state == io::SlotState::empty ? 0 : 1;
    const auto found = io::find_slot(bucket, record.key);
    expect(found.has_value() || !record.readable(), "a readable record is found");
    expect(!found || (found->place < places && found->record.readable() &&
                      found->record.key == record.key),
           "what is found is the block");
    const auto slots = io::slots_for(bucket, record.key, 4);
    expect(slots.size() <= 4 && std::ranges::all_of(slots,
                                                    [&](const io::FoundSlot& slot) {
                                                      return slot.place < places &&
                                                             slot.record.state !=
                                                                 io::SlotState::whole;
                                                    }),
           "slots that are given are in the bucket and hold nothing that is kept");
  }
  return records > 0;
}

bool run_message(std::span<const std::byte> input) {
  const auto header = io::decode_peer_header(input);
  if (header) {
    expect(
        header->bytes > 0 && header->offset + std::uint64_t{header->bytes} <= io::cache_block_bytes,
        "a message is about bytes that a block has");
    expect(std::ranges::equal(io::encode_peer_header(*header), input) ||
               io::decode_peer_header(io::encode_peer_header(*header)) == header,
           "a header comes back");
  }
  bool understood = header.has_value();
  io::PeerHeader given;
  if (input.size() >= 20) {
    std::uint32_t verb = 0;
    std::memcpy(&verb, input.data(), 4);
    given.verb = static_cast<io::PeerVerb>(verb);
    std::memcpy(&given.number, input.data() + 4, 8);
    std::memcpy(&given.offset, input.data() + 12, 4);
    std::memcpy(&given.bytes, input.data() + 16, 4);
    const auto again = io::decode_peer_header(io::encode_peer_header(given));
    expect(!again || *again == given, "fields come back");
    understood |= again.has_value();
    expect(!again || (verb <= static_cast<std::uint32_t>(io::PeerVerb::give) &&
                      given.bytes <= io::cache_block_bytes),
           "what is out of bounds is refused");
  }
  return understood;
}

}  // namespace

/// The first byte says what the rest is taken for.
bool run_caches(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const auto rest = input.subspan(1);
  switch (static_cast<unsigned>(input[0]) % 3) {
    case 0:
      return run_header(rest);
    case 1:
      return run_bucket(rest);
    default:
      return run_message(rest);
  }
}

}  // namespace sprat::fuzz
