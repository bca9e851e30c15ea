// The index of a cache as bytes, also those that nobody wrote.
#include "io/caches/slot_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/unit/io/caches/blocks.hpp"

namespace sprat::io {
namespace {

SlotRecord slot_record(std::uint64_t block, SlotState state) {
  return {.key = {.file = made_up_file(1), .block = block},
          .bytes = 1000,
          .state = state,
          .checksum = block * 17,
          .generation = block + 1};
}

std::vector<std::byte> bucket_of_records(const std::vector<SlotRecord>& records) {
  std::vector<std::byte> bytes(records.size() * slot_record_bytes);
  for (std::size_t place = 0; place < records.size(); ++place) {
    const SlotRecordBytes one = encode_slot(records[place]);
    std::memcpy(bytes.data() + place * slot_record_bytes, one.data(), one.size());
  }
  return bytes;
}

TEST(SlotTable, has_no_more_slots_than_fit) {
  for (const std::uint64_t slots : {1u, 2u, 255u, 256u, 300u, 511u, 512u, 1000u, 100'000u}) {
    const SlotTableShape shape = slot_table_shape(slots * cache_block_bytes + 17);
    EXPECT_LE(shape.slots(), slots);
    EXPECT_GE(shape.slots(), slots - slots / least_bucket_slots);
    EXPECT_LE(shape.bucket_slots, most_bucket_slots);
    EXPECT_EQ(decode_slot_header(encode_slot_header(shape)), shape);
  }
  EXPECT_EQ(slot_table_shape(cache_block_bytes - 1).slots(), 0u);
}

TEST(SlotTable, takes_no_record_that_was_written_in_part) {
  const SlotRecord record = slot_record(3, SlotState::whole);
  const SlotRecordBytes after = encode_slot(record);
  EXPECT_EQ(decode_slot(after), record);
  const SlotRecord earlier = slot_record(900, SlotState::writing);
  const SlotRecordBytes before = encode_slot(earlier);
  for (std::size_t torn = 1; torn < slot_record_bytes; ++torn) {
    SlotRecordBytes mixed = before;
    std::memcpy(mixed.data(), after.data(), torn);
    const SlotRecord read = decode_slot(mixed);
    const bool is_one_of_them = mixed == before || mixed == after;
    EXPECT_TRUE(is_one_of_them ? read == earlier || read == record : read == SlotRecord{}) << torn;
  }
}

TEST(SlotTable, takes_a_changed_bit_for_an_empty_slot) {
  const SlotRecordBytes whole = encode_slot(slot_record(3, SlotState::whole));
  for (std::size_t bit = 0; bit < 8 * slot_record_bytes; ++bit) {
    SlotRecordBytes changed = whole;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(decode_slot(changed), SlotRecord{}) << bit;
  }
}

TEST(SlotTable, finds_what_is_readable_and_nothing_else) {
  const auto bucket = bucket_of_records({slot_record(1, SlotState::whole),
                                         slot_record(2, SlotState::writing),
                                         slot_record(3, SlotState::spare),
                                         {},
                                         slot_record(4, SlotState::empty)});
  const auto find = [&](std::uint64_t block) {
    return find_slot(bucket, {.file = made_up_file(1), .block = block});
  };
  ASSERT_TRUE(find(1) && find(3));
  EXPECT_EQ(find(1)->place, 0u);
  EXPECT_EQ(find(3)->place, 2u);
  EXPECT_FALSE(find(2));
  EXPECT_FALSE(find(4));
  EXPECT_FALSE(find(5));
  EXPECT_FALSE(find_slot(bucket, {.file = made_up_file(2), .block = 1}));
}

TEST(SlotTable, gives_a_block_the_slot_it_was_written_to_then_empty_ones_then_spare_ones) {
  const auto bucket = bucket_of_records({slot_record(1, SlotState::whole),
                                         slot_record(2, SlotState::spare),
                                         {},
                                         slot_record(3, SlotState::writing),
                                         slot_record(4, SlotState::writing)});
  const auto places = [&](std::uint64_t block, std::size_t most) {
    std::vector<std::size_t> all;
    for (const FoundSlot& slot :
         slots_for(bucket, {.file = made_up_file(1), .block = block}, most)) {
      all.push_back(slot.place);
    }
    return all;
  };
  EXPECT_EQ(places(4, 9), (std::vector<std::size_t>{4, 2, 1, 3}));
  EXPECT_EQ(places(9, 9), (std::vector<std::size_t>{2, 1, 3, 4}));
  EXPECT_EQ(places(9, 2), (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(places(9, 0), (std::vector<std::size_t>{}));
}

TEST(SlotTable, fills_all_but_one_slot_in_thirty) {
  const SlotTableShape shape = slot_table_shape(std::uint64_t{16} * 256 * cache_block_bytes);
  std::map<std::uint64_t, std::uint64_t> filled;
  for (std::uint64_t block = 0; block < shape.slots(); ++block) {
    ++filled[bucket_of({.file = made_up_file(static_cast<int>(block / 100)), .block = block % 100},
                       shape)];
  }
  std::uint64_t kept = 0;
  for (const auto& [bucket, blocks] : filled) {
    kept += std::min(blocks, shape.bucket_slots);
  }
  EXPECT_GT(kept, shape.slots() * 29 / 30);
}

TEST(SlotTable, refuses_headers_of_files_that_cannot_be) {
  const auto bytes = encode_slot_header(slot_table_shape(100 * cache_block_bytes));
  EXPECT_TRUE(decode_slot_header(bytes));
  for (std::size_t bit = 0; bit < 8 * 48; ++bit) {
    auto changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_slot_header(changed)) << bit;
  }
  EXPECT_FALSE(decode_slot_header({}));
  EXPECT_FALSE(decode_slot_header(encode_slot_header({.buckets = 0, .bucket_slots = 300})));
  EXPECT_FALSE(decode_slot_header(encode_slot_header({.buckets = 3, .bucket_slots = 0})));
  EXPECT_FALSE(decode_slot_header(encode_slot_header({.buckets = 1, .bucket_slots = 512})));
  EXPECT_FALSE(
      decode_slot_header(encode_slot_header({.buckets = ~std::uint64_t{0}, .bucket_slots = 300})));
}

}  // namespace
}  // namespace sprat::io
