// Two looks become rows.
#include "cli/top/rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/cli/top/host_looks.hpp"

namespace sprat::cli {
namespace {

using ::testing::HasSubstr;

/// A job of two, whose rank 1 is slow: looks at 20 s and 22 s.
struct SlowJob {
  SlowJob() {
    RankLook quick = rank_look(0, 20, 5), slow = rank_look(1, 20, 1);
    quick.record.totals = slow.record.totals = {{"all_reduce", 10, 1000}, {"barrier", 3, 0}};
    quick.looks = slow.looks = 40;
    before = host_look({quick, slow});
    before.processes[100].cpu_seconds = 3;
    for (RankLook* one : {&quick, &slow}) {
      one->record.taken = 22;
      one->looks = 60;
      one->record.totals = {{"all_reduce", 30, 5000}, {"all_gather", 2, 8000}, {"barrier", 3, 0}};
    }
    quick.record.waited = 6.5;
    slow.late = 15;
    show_world(quick, 5, 21.4);
    quick.record.communicators.back().operations.back().late = {1};
    show_world(slow, 4, 0);
    after = host_look({quick, slow});
    after.processes[100].cpu_seconds = 4;
  }
  HostLook before, after;
};

TEST(TopRows, are_rates_between_the_looks) {
  const SlowJob job;
  const HostRows rows = rows_between(job.before, job.after);
  ASSERT_EQ(rows.jobs.size(), 1u);
  const JobRows& one = rows.jobs.front();
  EXPECT_EQ(one.command, "./train --lr 1");
  EXPECT_EQ(one.size, 2);
  EXPECT_DOUBLE_EQ(one.age, 12);
  ASSERT_EQ(one.ranks.size(), 2u);
  const RankRow& quick = one.ranks[0];
  EXPECT_DOUBLE_EQ(quick.calls, 11);  // 20 all_reduces and two all_gathers in two seconds
  EXPECT_DOUBLE_EQ(quick.bytes, 6000);
  ASSERT_EQ(quick.operations.size(), 2u) << "no barrier was called between the looks";
  EXPECT_EQ(quick.operations[0].operation, "all_gather");
  EXPECT_DOUBLE_EQ(quick.operations[0].bytes, 4000);
  EXPECT_DOUBLE_EQ(quick.operations[1].calls, 10);
  EXPECT_DOUBLE_EQ(quick.waits, 0.75);
  EXPECT_DOUBLE_EQ(quick.cpu, 0.5);
  EXPECT_EQ(quick.doing, "all_reduce of 4 f32, sum since 600 ms, not called by rank 1");
  EXPECT_DOUBLE_EQ(one.ranks[1].late, 0.75);
  EXPECT_EQ(one.ranks[1].doing, "");
  EXPECT_EQ(
      one.straggler,
      "rank 1 keeps others waiting: late in 75 % of the looks; they wait 75 % of the time, it "
      "0 %");
}

TEST(TopRows, a_rank_that_came_between_the_looks_is_measured_since_it_joined) {
  const SlowJob job;
  const HostRows rows = rows_between(host_look({}), job.after);
  const RankRow& quick = rows.jobs.front().ranks.front();
  EXPECT_DOUBLE_EQ(quick.bytes, 13000.0 / 12);
  EXPECT_DOUBLE_EQ(quick.waits, 6.5 / 12);
}

// What it has used before is not to be divided by the time since its rank joined.
TEST(TopRows, cores_are_those_of_the_process_whenever_its_rank_joined) {
  SlowJob job;
  job.after.processes[100].lived = 16;
  EXPECT_DOUBLE_EQ(rows_between(host_look({}), job.after).jobs[0].ranks[0].cpu, 4.0 / 16);
  HostLook before = job.before;  // the process is a rank of another job alone
  before.ranks[0].record.job = "another";
  EXPECT_DOUBLE_EQ(rows_between(before, job.after).jobs[0].ranks[0].cpu, 0.5);
}

TEST(TopRows, foreign_numbers_that_go_back_give_no_rate) {
  const SlowJob job;
  HostLook before = job.before;
  before.ranks[0].record.totals = {{"all_reduce", ~0ull, ~0ull}};
  before.ranks[0].record.waited = 1e9;
  before.ranks[0].record.taken = 30;
  const RankRow row = rows_between(before, job.after).jobs.front().ranks.front();
  EXPECT_EQ(row.waits, 0);
  EXPECT_GE(row.bytes, 0);
}

TEST(TopRows, a_stopped_process_says_so) {
  SlowJob job;
  job.after.processes[101].state = 'T';
  const HostRows rows = rows_between(job.before, job.after);
  EXPECT_EQ(rows.jobs.front().ranks[1].doing, "stopped");
}

TEST(TopRows, are_sorted_within_their_job) {
  const SlowJob job;
  struct SortCase {
    RankOrder order;
    int first;
  };
  for (const SortCase& one : std::vector<SortCase>{{RankOrder::rank, 0},
                                                   {RankOrder::waits, 0},
                                                   {RankOrder::late, 1},
                                                   {RankOrder::cpu, 0}}) {
    HostRows rows = rows_between(job.before, job.after);
    sort_ranks(rows, one.order);
    EXPECT_EQ(rows.jobs.front().ranks.front().rank, one.first) << name(one.order);
  }
}

TEST(TopRows, are_json_for_machines) {
  SlowJob job;
  job.after.gpus.emplace();
  (*job.after.gpus)[101] = {.bytes = 1 << 20, .busy = std::nullopt};
  const auto json = nlohmann::json::parse(to_json(rows_between(job.before, job.after)));
  const auto& rank = json.at("jobs").at(0).at("ranks").at(1);
  EXPECT_EQ(rank.at("late_share"), 0.75);
  EXPECT_EQ(rank.at("gpu_bytes"), 1 << 20);
  EXPECT_TRUE(rank.at("gpu_busy").is_null());
  EXPECT_FALSE(json.at("jobs").at(0).at("ranks").at(0).contains("gpu_bytes"));
  EXPECT_THAT(json.at("jobs").at(0).at("straggler").get<std::string>(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace sprat::cli
