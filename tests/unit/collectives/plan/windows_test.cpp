// How large operations are cut: a table, and what holds of every cut.
#include "collectives/plan/windows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sprat/error.hpp"

namespace sprat::collectives {
namespace {

constexpr std::size_t KiB = 1 << 10, MiB = 1 << 20;

/// f32 over `ranks` ranks, in turn on `hosts` hosts.
Problem windowed_problem(Collective collective, std::size_t count, int ranks, int hosts) {
  std::vector<int> host_of(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    host_of[static_cast<std::size_t>(rank)] = rank % hosts;
  }
  Problem problem;
  problem.collective = collective;
  problem.count = count;
  problem.grouping = std::make_shared<const Grouping>(host_of);
  return problem;
}

struct Row {
  const char* name;
  Collective collective;
  std::size_t count;
  int ranks, hosts;
  Access access;
  Windows windows;
};

// With 4 KiB of staging memory. A row of an all_reduce is 8 bytes, of an all_gather 4 and 4 a rank.
const Row rows[] = {
    {"fits", Collective::all_reduce, 256, 4, 1, Access::staged, {256, 1}},
    {"one more than fits", Collective::all_reduce, 257, 4, 1, Access::staged, {256, 2}},
    {"readable", Collective::all_reduce, 1'000'000, 4, 1, Access::direct, {1'000'000, 1}},
    {"whole lines", Collective::all_gather, 1'000, 2, 1, Access::staged, {128, 8}},
    {"the least window", Collective::all_gather, 1'000, 7, 1, Access::staged, {64, 16}},
    {"a root's input", Collective::scatter, 1'000, 4, 1, Access::staged, {128, 8}},
    {"a rank a host", Collective::all_reduce, 1'000'000, 4, 4, Access::staged, {1'000'000, 1}},
    {"two hosts", Collective::all_reduce, 257, 4, 2, Access::staged, {256, 2}},
    {"two hosts, readable",
     Collective::all_reduce,
     1'000'000,
     4,
     2,
     Access::direct,
     {1'000'000, 1}},
    {"two hosts, large", Collective::all_reduce, 20 * MiB, 4, 2, Access::direct, {8 * MiB, 3}},
    {"an exchange", Collective::gatherv, 1'000'000, 4, 1, Access::staged, {1'000'000, 1}},
    {"nothing", Collective::barrier, 0, 4, 1, Access::staged, {0, 1}},
};

TEST(Cut, are_as_the_table_says) {
  for (const Row& row : rows) {
    const Problem problem = windowed_problem(row.collective, row.count, row.ranks, row.hosts);
    const Windows windows = cut(problem, row.access, 4 * KiB);
    EXPECT_EQ(windows.count, row.windows.count) << row.name;
    EXPECT_EQ(windows.number, row.windows.number) << row.name;
  }
}

TEST(Cut, cover_every_block_once) {
  for (const Row& row : rows) {
    const Problem problem = windowed_problem(row.collective, row.count, row.ranks, row.hosts);
    const Windows windows = cut(problem, row.access, 4 * KiB);
    std::size_t covered = 0;
    for (std::size_t index = 0; index < windows.number; ++index) {
      const Window window = window_of(problem, windows, index);
      EXPECT_EQ(window.first, covered) << row.name;
      covered += window.count;
    }
    EXPECT_EQ(covered, row.count) << row.name;
  }
}

TEST(Cut, of_blocks_that_differ_hold_the_same_part_of_each) {
  Problem problem = windowed_problem(Collective::all_gather, 300, 3, 1);
  problem.counts = std::make_shared<const BlockCounts>(std::vector<std::size_t>{300, 0, 140});
  const Windows windows{.count = 128, .number = 3};
  const Window second = window_of(problem, windows, 1);
  EXPECT_EQ(elements_of(problem, second, Buffer::input, 0), 128u);
  EXPECT_EQ(elements_of(problem, second, Buffer::input, 2), 12u);
  EXPECT_EQ(elements_of(problem, second, Buffer::output, 0), 140u);
  EXPECT_EQ(window_of(problem, windows, 2).counts->total(), 44u);
}

TEST(Cut, too_small_for_a_line_of_each_rank_name_the_setting) {
  const Problem problem = windowed_problem(Collective::all_gather, 1'000, 8, 1);
  try {
    cut(problem, Access::staged, 4 * KiB);
    FAIL() << "8 ranks need 36 bytes times 64, twice";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("8 ranks need at least 4608"));
  }
  EXPECT_EQ(cut(problem, Access::direct, 4 * KiB).number, 1u);
}

TEST(Cut, of_one_host_depend_on_memory_only_where_they_would_be_many) {
  EXPECT_FALSE(asks_announcements(windowed_problem(Collective::all_reduce, 256, 4, 1), 4 * KiB));
  EXPECT_TRUE(asks_announcements(windowed_problem(Collective::all_reduce, 257, 4, 1), 4 * KiB));
  EXPECT_FALSE(asks_announcements(windowed_problem(Collective::all_reduce, 257, 4, 2), 4 * KiB));
  EXPECT_FALSE(asks_announcements(windowed_problem(Collective::gatherv, 257, 4, 1), 4 * KiB));
}

TEST(Cut, of_several_hosts_are_staged_unless_nobody_can_need_it) {
  const Problem large = windowed_problem(Collective::all_reduce, 20 * MiB, 4, 2);
  const Algorithm plain{}, copying{.snapshots = true};
  EXPECT_EQ(access_between_hosts(large, plain, true), Access::direct);
  EXPECT_EQ(access_between_hosts(large, plain, false), Access::staged);
  EXPECT_EQ(access_between_hosts(large, copying, true), Access::staged);
  const Problem small = windowed_problem(Collective::all_reduce, MiB, 4, 2);
  EXPECT_EQ(access_between_hosts(small, plain, true), Access::staged);
}

// Beyond 4,096 ranks half of 4 MiB of staging memory holds no line of every block.
TEST(Cut, of_all_to_alls_of_many_ranks_need_no_more_staging_memory) {
  const Problem many = windowed_problem(Collective::all_to_all, MiB, 16'384, 2'048);
  EXPECT_EQ(access_between_hosts(many, Algorithm{}, true), Access::direct);
  EXPECT_EQ(cut(many, Access::direct, 4 * MiB).count, 512u);
  EXPECT_THROW(cut(many, Access::staged, 4 * MiB), Error);
}

}  // namespace
}  // namespace sprat::collectives
