// What is skipped, and what takes its place.
#include "io/order/skip_list.hpp"

#include <gtest/gtest.h>

#include <set>

#include "comm/base/hash.hpp"
#include "sprat/error.hpp"

namespace sprat::io {
namespace {

TEST(SkipList, ranges_that_touch_or_overlap_become_one) {
  SkipList list;
  list.add(0, {10, 12});
  list.add(0, {20, 21});
  list.add(0, {12, 13});
  EXPECT_EQ(list.ranges(), 2u);
  list.add(0, {11, 15});
  list.add(0, {9, 10});
  ASSERT_EQ(list.ranges(), 2u);
  EXPECT_EQ(list.of(0)[0], (RecordRange{9, 15}));
  list.add(0, {14, 30});
  ASSERT_EQ(list.ranges(), 1u);
  EXPECT_EQ(list.of(0)[0], (RecordRange{9, 30}));
  EXPECT_EQ(list.records(), 21u);
}

TEST(SkipList, has_what_a_set_of_records_has) {
  SkipList list(2);
  std::set<std::uint64_t> sets[2];
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t drawn = mix_bits(i + 1), source = drawn % 2, begin = drawn / 2 % 200;
    const std::uint64_t end = begin + 1 + drawn / 1024 % 3;
    list.add(source, {begin, end});
    for (std::uint64_t record = begin; record < end; ++record) {
      sets[source].insert(record);
    }
    ASSERT_EQ(list.records(), sets[0].size() + sets[1].size());
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::uint64_t record = 0; record < 203; ++record) {
        std::uint64_t expected = record;
        for (std::size_t step = 0; step < 203 && sets[s].contains(expected); ++step) {
          expected = (expected + 1) % 203;
        }
        if (sets[s].size() < 203) {
          ASSERT_EQ(usable_record(record, 203, list.of(s)), expected) << "record " << record;
        }
      }
    }
  }
}

TEST(SkipList, replacements_go_around_the_end) {
  SkipList list;
  list.add(0, {0, 2});
  list.add(0, {8, 10});
  EXPECT_EQ(usable_record(9, 10, list.of(0)), 2u);
  list.add(0, {2, 8});
  EXPECT_THROW(usable_record(5, 10, list.of(0)), Error);
}

TEST(SkipList, keeps_the_longest_and_of_equal_ones_the_first) {
  SkipList list(2);
  list.add(0, {5, 6});
  list.add(0, {10, 13});
  list.add(1, {2, 3});
  list.add(1, {7, 9});
  const SkipList kept = list.longest(3);
  SkipList expected(2);
  expected.add(0, {5, 6});
  expected.add(0, {10, 13});
  expected.add(1, {7, 9});
  EXPECT_EQ(kept, expected);
  EXPECT_EQ(list.longest(9), list);
}

TEST(SkipList, of_ranks_merge_to_the_same_in_any_order) {
  SkipList one(2), other(2);
  one.add(0, {1, 3});
  one.add(1, {4, 5});
  other.add(0, {3, 4});
  SkipList first = one, second = other;
  first.merge(other);
  second.merge(one);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.ranges(), 2u);
  EXPECT_THROW(first.merge(SkipList(3)), Error);
  EXPECT_THROW(first.add(2, {0, 1}), Error);
  EXPECT_THROW(first.add(0, {1, 1}), Error);
}

}  // namespace
}  // namespace sprat::io
