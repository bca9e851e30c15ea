// Rows as text that fits.
#include "cli/top/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RankRow rank_row(int rank, pid_t pid) {
  return {.rank = rank,
          .pid = pid,
          .calls = 1234.5,
          .bytes = 24641536,
          .operations = {{"all_reduce", 1200, 24641536}, {"barrier", 34.5, 0}},
          .waits = 0.71,
          .late = 0.05,
          .cpu = 1.5,
          .resident_bytes = 85 << 20,
          .state = 'R',
          .gpus = {},
          .doing = rank == 0 ? "all_reduce of 4 f32, sum since 3 ms, waits for rank 1" : ""};
}

HostRows rows_of_ranks(pid_t second = 101) {
  return {.has_gpus = false,
          .jobs = {{.job = "100-aa",
                    .command = "./train",
                    .user = "",
                    .size = 4,
                    .hosts = 2,
                    .age = 192,
                    .failure = "",
                    .ranks = {rank_row(0, 100), rank_row(1, second)},
                    .straggler = "rank 1 keeps others waiting"}},
          .unreadable = {}};
}

TEST(TopTable, shows_a_job_and_its_ranks) {
  EXPECT_THAT(
      table_of(rows_of_ranks(), {}),
      ElementsAre(
          "100-aa: 2 of 4 ranks here, 2 hosts, 3 min 12 s", "  ./train",
          " RANK     PID CALLS/S    BYTES/S  WAIT  LATE    CPU        RSS  NOW                    "
          "                   BY OPERATION",
          "    0     100    1.2k   23.5 MiB   71%    5%   150%     85 MiB  all_reduce of 4 f32, "
          "sum "
          "since 3 ms, w..  all_reduce 23.5 MiB/s, barrier 34/s",
          "    1     101    1.2k   23.5 MiB   71%    5%   150%     85 MiB  -                      "
          "                   all_reduce 23.5 MiB/s, barrier 34/s",
          "  rank 1 keeps others waiting"));
}

TEST(TopTable, is_never_wider_or_longer_than_its_space) {
  HostRows rows = rows_of_ranks();
  rows.has_gpus = true;
  rows.jobs.front().command = std::string(300, 'x');
  rows.jobs.front().failure = std::string(300, 'y');
  rows.unreadable = {std::string(300, 'z')};
  for (std::size_t columns = 1; columns < 240; ++columns) {
    for (const std::string& line : table_of(rows, {.columns = columns, .lines = 0})) {
      EXPECT_LE(line.size(), columns) << line;
    }
  }
  for (std::size_t lines = 1; lines < 12; ++lines) {
    EXPECT_LE(table_of(rows, {.columns = 80, .lines = lines}).size(), lines);
  }
  EXPECT_EQ(table_of(rows, {.columns = 80, .lines = 3}).back(), "6 more lines have no room here");
}

TEST(TopTable, leaves_out_what_matters_least_first) {
  struct WidthCase {
    std::size_t columns;
    const char* shown;
    const char* hidden;
  };
  for (const WidthCase& one : std::vector<WidthCase>{{140, "BY OPERATION", "GPU"},
                                                     {100, "NOW", "BY OPERATION"},
                                                     {70, "RSS", "NOW"},
                                                     {30, "LATE", "PID"},
                                                     {12, "WAIT", "LATE"}}) {
    const std::string title = table_of(rows_of_ranks(), {.columns = one.columns, .lines = 0}).at(2);
    EXPECT_THAT(title, HasSubstr(one.shown)) << one.columns;
    EXPECT_THAT(title, Not(HasSubstr(one.hidden))) << one.columns;
  }
}

TEST(TopTable, says_once_what_ranks_of_a_process_share) {
  const std::vector<std::string> lines = table_of(rows_of_ranks(100), {});
  EXPECT_THAT(lines.at(3), HasSubstr(" 150% "));
  EXPECT_THAT(lines.at(4), HasSubstr(" \"          \"  -"));
}

TEST(TopTable, has_columns_of_gpus_where_they_tell) {
  HostRows rows = rows_of_ranks();
  rows.has_gpus = true;
  rows.jobs.front().ranks.front().gpus = {.bytes = 3ull << 30, .busy = 0.5};
  const std::vector<std::string> lines = table_of(rows, {});
  EXPECT_THAT(lines.at(2), HasSubstr("   GPU    GPU MEM"));
  EXPECT_THAT(lines.at(3), HasSubstr("   50%      3 GiB"));
}

TEST(TopTable, says_that_there_is_nothing) {
  EXPECT_THAT(table_of({}, {}), ElementsAre("no process of this user is a rank of a Sprat job"));
}

}  // namespace
}  // namespace sprat::cli
