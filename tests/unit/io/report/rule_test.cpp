// Debugger's rules over whole runs: each is provoked, stays quiet in health, and says what it
// lacks.
#include "io/report/rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace sprat::io {
namespace {

using ::testing::HasSubstr;
using Verdict = RuleResult::Verdict;

/// A minute of a rank that computes all the time.
RankReport busy_rank(
    int rank, const std::function<void(Interval&)>& change = [](Interval&) {}) {
  RankReport report{.rank = rank, .intervals = {}};
  for (int second = 0; second < 60; ++second) {
    Interval one{.begin_s = static_cast<double>(second), .samples = 10};
    one.bytes.file_system = 100'000'000;
    one.consumer_wait = 0.01;
    one.stages = {{"decode", 4, 2.0}};
    one.gpu_busy = 0.95;
    one.step_seconds = {0.5, 0.5};
    change(one);
    report.intervals.push_back(one);
  }
  return report;
}

RuleResult judged_by(std::string_view rule, const std::vector<RankReport>& run) {
  for (const RuleKind* kind : rule_kinds()) {
    if (kind->name == rule) {
      return kind->judge(run);
    }
  }
  ADD_FAILURE() << "no rule " << rule;
  return {};
}

TEST(RunRules, health_is_fine_by_all_of_them) {
  for (const RuleKind* kind : rule_kinds()) {
    const RuleResult result = kind->judge(std::vector{busy_rank(0), busy_rank(1)});
    EXPECT_EQ(result.verdict, Verdict::fine) << kind->name << ": " << result.sentence;
    EXPECT_FALSE(result.sentence.empty());
  }
}

TEST(RunRules, a_run_of_nothing_is_not_measured) {
  for (const RuleKind* kind : rule_kinds()) {
    EXPECT_EQ(kind->judge({}).verdict, Verdict::not_measured) << kind->name;
    const std::vector<RankReport> short_run = {{.rank = 0, .intervals = {Interval{}}}};
    EXPECT_EQ(kind->judge(short_run).verdict, Verdict::not_measured) << kind->name;
  }
}

TEST(RunRules, CPUBottleneck_is_found_where_cores_are_full_and_gpus_idle) {
  const auto starved = [](Interval& one) {
    one.gpu_busy = 0.05;
    one.consumer_wait = 0.8;
    one.stages[0].busy_seconds = 3.9;
  };
  const RuleResult result = judged_by("CPUBottleneck", {busy_rank(0, starved)});
  EXPECT_EQ(result.verdict, Verdict::found);
  EXPECT_EQ(result.sentence,
            "for 100 % of 50 s computing was idle while cores were more than 90 % busy (98 % on "
            "average)");
  EXPECT_EQ(judged_by("IOBottleneck", {busy_rank(0, starved)}).verdict, Verdict::fine)
      << "storage is not to blame";
}

TEST(RunRules, IOBottleneck_is_found_where_samples_are_waited_for) {
  const auto starved = [](Interval& one) {
    one.gpu_busy = 0.05;
    one.consumer_wait = 0.8;
  };
  const RuleResult result = judged_by("IOBottleneck", {busy_rank(0, starved)});
  EXPECT_EQ(result.verdict, Verdict::found);
  EXPECT_EQ(
      result.sentence,
      "for 100 % of 50 s computing was idle while samples were waited for; waits took 80 % of "
      "the time, at 100.0 MB/s from storage");
  EXPECT_EQ(judged_by("CPUBottleneck", {busy_rank(0, starved)}).verdict, Verdict::fine);
}

TEST(RunRules, bottlenecks_without_a_gpu_say_what_was_taken_for_idle) {
  const auto starved = [](Interval& one) {
    one.gpu_busy.reset();
    one.consumer_wait = 0.8;
  };
  const RuleResult result = judged_by("IOBottleneck", {busy_rank(0, starved)});
  EXPECT_EQ(result.verdict, Verdict::found);
  EXPECT_THAT(result.sentence, HasSubstr("GPUs not measured"));
}

TEST(RunRules, LoadBalancing_is_found_between_ranks) {
  const auto idle = [](Interval& one) { one.gpu_busy = 0.35; };
  const RuleResult result =
      judged_by("LoadBalancing", {busy_rank(0), busy_rank(1, idle), busy_rank(2)});
  EXPECT_EQ(result.verdict, Verdict::found);
  EXPECT_THAT(result.sentence, HasSubstr("rank 1 35 %; their histograms are 1.00 apart"));
  EXPECT_EQ(judged_by("LoadBalancing", {busy_rank(0)}).verdict, Verdict::not_measured);
}

TEST(RunRules, LowGPUUtilization_is_found_or_not_measured) {
  const auto low = [](Interval& one) { one.gpu_busy = 0.4; };
  const RuleResult little = judged_by("LowGPUUtilization", {busy_rank(0), busy_rank(1, low)});
  EXPECT_EQ(little.verdict, Verdict::found);
  EXPECT_EQ(little.sentence, "rank 1: p95 of its GPU's use is 40 %, p5 40 %: little used");
  const auto unsteady = [](Interval& one) {
    one.gpu_busy = static_cast<int>(one.begin_s) % 4 == 0 ? 0.02 : 0.99;
  };
  EXPECT_THAT(judged_by("LowGPUUtilization", {busy_rank(0, unsteady)}).sentence,
              HasSubstr("by fits and starts"));
  const auto none = [](Interval& one) { one.gpu_busy.reset(); };
  const RuleResult missing = judged_by("LowGPUUtilization", {busy_rank(0, none)});
  EXPECT_EQ(missing.verdict, Verdict::not_measured);
  EXPECT_THAT(missing.sentence, HasSubstr("NVML"));
}

TEST(RunRules, StepOutlier_is_found_where_more_than_ten_steps_are_slow) {
  const auto some = [](int every) {
    return [every](Interval& one) {
      one.step_seconds.assign(10, 0.1);
      if (static_cast<int>(one.begin_s) % every == 0) {
        one.step_seconds[0] = 2;
      }
    };
  };
  const RuleResult result = judged_by("StepOutlier", {busy_rank(0), busy_rank(3, some(4))});
  EXPECT_EQ(result.verdict, Verdict::found);
  EXPECT_THAT(result.sentence, HasSubstr("rank 3: 12 of 500 steps take more than"));
  EXPECT_EQ(judged_by("StepOutlier", {busy_rank(0, some(10))}).verdict, Verdict::fine)
      << "ten may pass";
}

TEST(RunRules, are_named_as_Debugger_names_them) {
  std::vector<std::string_view> names;
  for (const RuleKind* kind : rule_kinds()) {
    names.push_back(kind->name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("CPUBottleneck", "IOBottleneck", "LoadBalancing",
                                            "LowGPUUtilization", "StepOutlier"));
}

}  // namespace
}  // namespace sprat::io
