// Which blocks are kept, and by whom.
#include "io/caches/block.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "io/caches/owners.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/caches/blocks.hpp"

namespace sprat::io {
namespace {

TEST(CacheBlocks, cover_a_file_and_no_more) {
  EXPECT_EQ(block_count(0), 0u);
  EXPECT_EQ(bytes_of_block(0, 0), 0u);
  for (const std::uint64_t bytes : {std::uint64_t{1}, cache_block_bytes - 1, cache_block_bytes,
                                    cache_block_bytes + 1, 7 * cache_block_bytes + 5}) {
    std::uint64_t sum = 0;
    for (std::uint64_t block = 0; block < block_count(bytes); ++block) {
      EXPECT_GT(bytes_of_block(bytes, block), 0u);
      EXPECT_LE(bytes_of_block(bytes, block), cache_block_bytes);
      sum += bytes_of_block(bytes, block);
    }
    EXPECT_EQ(sum, bytes);
    EXPECT_EQ(bytes_of_block(bytes, block_count(bytes)), 0u);
  }
}

TEST(CacheBlocks, have_another_key_once_the_file_has_another_length_or_time_or_name) {
  const std::vector<FileKey> keys = {
      file_key("/data/a", {.bytes = 10, .modified_ns = 20}),
      file_key("/data/a", {.bytes = 11, .modified_ns = 20}),
      file_key("/data/a", {.bytes = 10, .modified_ns = 21}),
      file_key("/data/a", {.bytes = 20, .modified_ns = 10}),
      file_key("/data/b", {.bytes = 10, .modified_ns = 20}),
      file_key("/data2/a", {.bytes = 10, .modified_ns = 20}),
  };
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
  EXPECT_EQ(keys[0], file_key("/data/a", {.bytes = 10, .modified_ns = 20}));
}

/// How far a count of `n` draws of probability p may be from n p, once in ten million.
double count_spread(double n, double p) { return 5.3 * std::sqrt(n * p * (1 - p)); }

TEST(CacheBlocks, are_kept_by_the_share_that_there_is_room_for) {
  constexpr std::uint64_t files = 200, groups = 25;
  for (const double share : {0.01, 0.28, 0.5, 0.9}) {
    const KeepRule rule(static_cast<std::uint64_t>(share * 1e6), 1'000'000);
    std::uint64_t kept = 0;
    for (std::uint64_t file = 0; file < files; ++file) {
      for (std::uint64_t group = 0; group < groups; ++group) {
        kept += rule.keeps({.file = made_up_file(static_cast<int>(file)),
                            .block = group * blocks_kept_together})
                    ? 1
                    : 0;
      }
    }
    const double draws = files * groups;
    EXPECT_NEAR(static_cast<double>(kept), share * draws, count_spread(draws, share)) << share;
  }
}

TEST(CacheBlocks, are_all_kept_where_there_is_room_and_none_without) {
  const KeepRule all(100, 100), none(0, 100);
  for (std::uint64_t block = 0; block < 1000; ++block) {
    EXPECT_TRUE(all.keeps({.file = made_up_file(1), .block = block}));
    EXPECT_FALSE(none.keeps({.file = made_up_file(1), .block = block}));
  }
}

TEST(CacheBlocks, stay_kept_when_there_is_more_room) {
  const KeepRule small(100, 1000), large(300, 1000);
  for (std::uint64_t block = 0; block < 4000; ++block) {
    const BlockKey key{.file = made_up_file(3), .block = block};
    EXPECT_TRUE(!small.keeps(key) || large.keeps(key)) << block;
  }
}

TEST(CacheBlocks, of_one_request_are_kept_and_owned_together) {
  const KeepRule rule(1, 2);
  const std::vector<std::string> hosts = {"a", "b", "c"};
  const BlockOwners owners(hosts, 0);
  for (std::uint64_t block = 0; block < 400; ++block) {
    const BlockKey key{.file = made_up_file(3), .block = block};
    const BlockKey first{.file = key.file,
                         .block = block / blocks_kept_together * blocks_kept_together};
    EXPECT_EQ(rule.keeps(key), rule.keeps(first)) << block;
    EXPECT_EQ(owners.owner(key), owners.owner(first)) << block;
  }
}

std::vector<std::string> named_hosts(int count) {
  std::vector<std::string> hosts;
  for (int host = 0; host < count; ++host) {
    hosts.push_back("host" + std::to_string(host));
  }
  return hosts;
}

TEST(BlockOwners, have_equal_shares_of_what_is_kept) {
  const std::vector<std::string> hosts = named_hosts(8);
  const BlockOwners owners(hosts, 0);
  const KeepRule rule(1, 2);
  std::vector<int> owned(hosts.size());
  int kept = 0;
  for (int file = 0; file < 400; ++file) {
    for (std::uint64_t block = 0; block < 100; block += blocks_kept_together) {
      const BlockKey key{.file = made_up_file(file), .block = block};
      if (rule.keeps(key)) {
        ++owned[owners.owner(key)];
        ++kept;
      }
    }
  }
  for (const int count : owned) {
    EXPECT_NEAR(count, kept / 8.0, count_spread(kept, 1 / 8.0));
  }
}

TEST(BlockOwners, change_for_one_block_in_n_when_a_host_comes_or_goes) {
  for (const int count : {2, 4, 16}) {
    const std::vector<std::string> before = named_hosts(count), after = named_hosts(count + 1);
    const BlockOwners few(before, 0), many(after, 0);
    int moved = 0, groups = 0;
    for (int file = 0; file < 400; ++file) {
      for (std::uint64_t block = 0; block < 100; block += blocks_kept_together) {
        const BlockKey key{.file = made_up_file(file), .block = block};
        const std::size_t owner = many.owner(key);
        ++groups;
        if (owner != few.owner(key)) {
          ++moved;
          EXPECT_EQ(owner, static_cast<std::size_t>(count)) << "to the host that came";
        }
      }
    }
    EXPECT_NEAR(moved, groups / (count + 1.0), count_spread(groups, 1 / (count + 1.0))) << count;
  }
}

TEST(BlockOwners, are_the_same_in_any_order_of_hosts) {
  const std::vector<std::string> one = {"a", "b", "c", "d"}, other = {"d", "b", "a", "c"};
  const BlockOwners first(one, 0), second(other, 0);
  for (std::uint64_t block = 0; block < 1000; ++block) {
    const BlockKey key{.file = made_up_file(5), .block = block};
    EXPECT_EQ(one[first.owner(key)], other[second.owner(key)]);
  }
}

TEST(BlockOwners, are_hosts_of_which_each_process_asks_one_of_its_own) {
  // Two processes of a, three of b: what a owns is everybody's there, and b's share the asking.
  const std::vector<std::string> hosts = {"a", "b", "b", "a", "b"};
  std::set<std::size_t> asked_in_a;
  for (std::size_t here = 0; here < hosts.size(); ++here) {
    const BlockOwners owners(hosts, here), of_first(hosts, 0);
    EXPECT_EQ(owners.hosts(), 2u);
    for (std::uint64_t block = 0; block < 1000; ++block) {
      const BlockKey key{.file = made_up_file(5), .block = block};
      const std::size_t owner = owners.owner(key);
      EXPECT_EQ(hosts[owner], hosts[of_first.owner(key)]) << "all agree on the host";
      if (hosts[owner] == hosts[here]) {
        EXPECT_EQ(owner, here);
      } else if (hosts[here] == "b") {
        asked_in_a.insert(owner);
      }
    }
  }
  EXPECT_EQ(asked_in_a, (std::set<std::size_t>{0, 3}));
}

TEST(BlockOwners, refuse_to_be_none) {
  const std::vector<std::string> none, one = {"a"};
  EXPECT_THROW(BlockOwners(none, 0), Error);
  EXPECT_THROW(BlockOwners(one, 1), Error);
}

}  // namespace
}  // namespace sprat::io
