// Which ranks share memory, from what they say of each other.
#include "comm/host/grouping.hpp"

#include <gtest/gtest.h>

namespace sprat::comm {
namespace {

TEST(Grouping, ranks_of_one_label_that_map_each_other_share_a_host) {
  EXPECT_EQ(group_hosts({{"a", {0, 1}}, {"a", {0, 1}}, {"b", {2}}}), (std::vector{0, 0, 1}));
}

TEST(Grouping, hosts_are_numbered_by_their_lowest_rank) {
  EXPECT_EQ(group_hosts({{"b", {0, 2}}, {"a", {1, 3}}, {"b", {0, 2}}, {"a", {1, 3}}}),
            (std::vector{0, 1, 0, 1}));
}

TEST(Grouping, one_failed_mapping_makes_every_rank_of_that_label_a_host_of_its_own) {
  EXPECT_EQ(group_hosts({{"a", {0, 1, 2}}, {"a", {0, 1}}, {"a", {0, 1, 2}}, {"b", {3}}}),
            (std::vector{0, 1, 2, 3}));
}

TEST(Grouping, all_read_each_other_only_if_every_rank_reads_all_others_of_its_host) {
  const std::vector<int> host_of = {0, 0, 1};
  EXPECT_TRUE(all_read_each_other(host_of, {{0, 1}, {0, 1}, {2}}));
  EXPECT_TRUE(all_read_each_other(host_of, {{1}, {0}, {}}));
  EXPECT_FALSE(all_read_each_other(host_of, {{0, 1}, {1}, {2}}));
  EXPECT_FALSE(all_read_each_other(host_of, {{0, 2}, {0, 1}, {2}}));
}

TEST(Grouping, a_rank_alone_is_a_host) { EXPECT_EQ(group_hosts({{"a", {0}}}), std::vector{0}); }

}  // namespace
}  // namespace sprat::comm
