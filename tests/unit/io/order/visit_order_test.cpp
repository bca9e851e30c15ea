// Orders of visits: every element once an epoch, near each other in chunks.
#include "io/order/visit_order.hpp"

#include <gtest/gtest.h>

#include <set>

#include "sprat/error.hpp"
#include "sprat/io.hpp"

namespace sprat::io {
namespace {

TEST(VisitOrder, visits_each_element_once_whatever_the_chunks) {
  const std::vector<ChunkBegins> all = {{0, 1},
                                        {0, 0, 5},
                                        {0, 5, 5, 5},
                                        {0, 3, 3, 10, 11, 11, 30},
                                        equal_chunks(100, 7),
                                        equal_chunks(100, 100),
                                        equal_chunks(100, 1000),
                                        equal_chunks(64, 1)};
  for (const ChunkBegins& chunks : all) {
    const std::uint64_t count = chunks.back();
    for (const std::uint64_t mixed : {1u, 2u, 3u, 1000u}) {
      const VisitOrder visits({.shuffle = Shuffle::chunks,
                               .seed = 3,
                               .count = count,
                               .chunks = chunks,
                               .mixed_chunks = mixed});
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
        std::set<std::uint64_t> seen;
        for (std::uint64_t i = 0; i < count; ++i) {
          seen.insert(visits(epoch, i));
        }
        ASSERT_EQ(seen.size(), count);
        ASSERT_EQ(*seen.rbegin(), count - 1);
      }
    }
  }
}

TEST(VisitOrder, in_chunks_has_its_elements_from_as_many_chunks_as_are_mixed) {
  const VisitOrder visits({.shuffle = Shuffle::chunks,
                           .seed = 3,
                           .count = 1000,
                           .chunks = equal_chunks(1000, 10),
                           .mixed_chunks = 4});
  std::set<std::vector<std::uint64_t>> windows;
  for (std::uint64_t window = 0; window < 25; ++window) {
    std::set<std::uint64_t> chunks;
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < 40; ++i) {
      order.push_back(visits(1, window * 40 + i) % 10);
      chunks.insert(visits(1, window * 40 + i) / 10);
    }
    EXPECT_EQ(chunks.size(), 4u);
    windows.insert(order);
  }
  EXPECT_EQ(windows.size(), 25u) << "each window has an order of its own";
}

TEST(VisitOrder, full_is_the_permutation_and_none_is_none) {
  const VisitOrder full({.seed = 9, .count = 77}), none({.shuffle = Shuffle::none, .count = 77});
  for (std::uint64_t i = 0; i < 77; ++i) {
    EXPECT_EQ(full(2, i), Permutation(9, 2, 77)(i));
    EXPECT_EQ(none(2, i), i);
  }
  EXPECT_THROW(none(0, 77), Error);
}

TEST(VisitOrder, refuses_tables_that_would_be_too_large) {
  EXPECT_THROW(equal_chunks(std::uint64_t{1} << 40, 100), Error);
  EXPECT_THROW(VisitOrder({.count = 0}), Error);
}

TEST(EpochCache, makes_a_table_once_and_keeps_two) {
  int made = 0;
  const EpochCache<int> cache([&](std::uint64_t epoch) {
    ++made;
    return static_cast<int>(epoch) * 10;
  });
  for (const std::uint64_t epoch : {1u, 2u, 1u, 2u, 1u}) {
    EXPECT_EQ(*cache.of(epoch), static_cast<int>(epoch) * 10);
  }
  EXPECT_EQ(made, 2);
  cache.of(3);
  cache.of(1);  // the one that was asked for last has stayed
  EXPECT_EQ(made, 3);
  cache.of(2);
  EXPECT_EQ(made, 4);
}

TEST(EpochCache, tries_again_after_a_failure) {
  int calls = 0;
  const EpochCache<int> cache([&](std::uint64_t) {
    if (++calls == 1) {
      throw Error(ErrorCode::unavailable, "no memory");
    }
    return 7;
  });
  EXPECT_THROW(cache.of(0), Error);
  EXPECT_EQ(*cache.of(0), 7);
}

}  // namespace
}  // namespace sprat::io
