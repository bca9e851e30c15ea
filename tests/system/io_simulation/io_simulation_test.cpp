// Every scenario, many seeds: reading ends, stays within its budget, brings every bit, and takes
// hardly longer than anything could.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "tests/system/io_simulation/scenarios.hpp"
#include "tests/system/io_simulation/sentences.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::io_simulation {
namespace {

/// Seeds of each scenario that every build runs; main.cpp runs others.
constexpr std::uint64_t seeds = sanitized ? 1 : 7;
/// Of the time that an ideal reader takes over the time taken, of each seed; of the least time that
/// any could take, of the median of a scenario's seeds.
constexpr double least_ratio = 0.9;

class ReadingInSimulation : public testing::TestWithParam<Scenario> {};

TEST_P(ReadingInSimulation, ends_within_its_budget_with_every_bit_right) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    const RunSetup setup = draw(GetParam(), seed);
    const RunResult result = run_reading(setup);
    EXPECT_FALSE(result.stuck);
    EXPECT_FALSE(result.failure);
    EXPECT_EQ(result.batches, setup.batches.size());
    EXPECT_EQ(result.wrong_batches, 0u);
    EXPECT_LE(result.most_budget_used, setup.scheduler.budget_bytes);
    EXPECT_EQ(result.hung.empty(), GetParam().name != "hanging_reads");
    for (const io::HungRead& hung : result.hung) {
      EXPECT_EQ(hung.request.target, setup.troubles[0].target);
    }
  }
}

TEST_P(ReadingInSimulation, takes_hardly_longer_than_anything_could) {
  if (!GetParam().bounded) {
    GTEST_SKIP() << "how long files take to come from the archive together has no bound here";
  }
  std::vector<double> ratios;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const RunSetup setup = draw(GetParam(), seed);
    const double taken = run_reading(setup).seconds;
    EXPECT_GE(seconds_in_order(setup) / taken, least_ratio) << "seed " << seed;
    ratios.push_back(least_seconds(setup) / taken);
    EXPECT_LE(ratios.back(), 1) << "seed " << seed << " beats the bound, so it is none";
  }
  std::ranges::sort(ratios);
  // One seed has no median. Time is virtual here, so builds without sanitizers have seen the same.
  if (ratios.size() > 1) {
    EXPECT_GE(ratios[ratios.size() / 2], least_ratio) << testing::PrintToString(ratios);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ReadingInSimulation,
                         testing::ValuesIn(scenarios().begin(), scenarios().end()),
                         [](const auto& one) { return std::string(one.param.name); });

class SentencesOfSimulation : public testing::TestWithParam<LimitKind> {};

// A sample of the seeds; main.cpp counts hundreds.
TEST_P(SentencesOfSimulation, name_what_limits) {
  for (std::uint64_t seed = 0; seed < (sanitized ? 1 : 2); ++seed) {
    const Judgement judgement = judge(GetParam(), seed);
    EXPECT_TRUE(judgement.right) << "seed " << seed << ": " << judgement.sentence;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, SentencesOfSimulation,
                         testing::ValuesIn(limited_runs().begin(), limited_runs().end()),
                         [](const auto& one) { return std::string(one.param.name); });
INSTANTIATE_TEST_SUITE_P(Pairs, SentencesOfSimulation,
                         testing::ValuesIn(twice_limited_runs().begin(),
                                           twice_limited_runs().end()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(HealthInSimulation, blames_nothing_but_computing_where_it_is_the_limit) {
  for (std::uint64_t seed = 0; seed < (sanitized ? 1 : 3); ++seed) {
    EXPECT_EQ(judge(healthy_run(), seed).named, std::set{io::Limit::compute}) << "seed " << seed;
  }
}

TEST(IoSimulation, is_the_same_each_time) {
  const RunSetup setup = draw(scenarios()[3], 5);
  const RunResult one = run_reading(setup), other = run_reading(setup);
  EXPECT_EQ(one.seconds, other.seconds);
  EXPECT_EQ(one.intervals, other.intervals);
}

TEST(IoSimulation, gives_up_a_target_that_stays_away_in_words_that_name_it) {
  RunSetup setup = draw(scenarios()[0], 1);
  setup.scheduler.retry_for = std::chrono::seconds(5);
  setup.troubles.push_back(
      {.kind = Trouble::Kind::fails, .target = 2, .from_s = 1, .error = ESHUTDOWN});
  const RunResult result = run_reading(setup);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->request.target, 2);
  EXPECT_LT(result.seconds, 30);
  EXPECT_THAT(describe(*result.failure, "shard"), testing::HasSubstr("storage target 2"));
}

TEST(IoSimulation, notes_all_bytes_that_came) {
  const RunSetup setup = draw(scenarios()[0], 3);
  const RunResult result = run_reading(setup);
  std::uint64_t bytes = 0;
  double seconds = 0;
  for (const io::Interval& interval : result.intervals) {
    for (const io::TargetInterval& target : interval.targets) {
      bytes += target.bytes;
      EXPECT_LE(target.in_flight, target.in_flight_cap);
      EXPECT_LE(target.p50_s, target.p95_s);
    }
    seconds += interval.seconds;
  }
  // Direct reads are told by what the file has of them.
  EXPECT_LE(bytes, result.read_bytes);
  EXPECT_GE(bytes, result.read_bytes * 99 / 100);
  EXPECT_DOUBLE_EQ(seconds, result.seconds);
}

TEST(IoSimulation, shares_what_is_scarce_fairly) {
  EXPECT_EQ(fair_shares({1, 2, 3}, 10), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(fair_shares({1, 10, 10}, 9), (std::vector<double>{1, 4, 4}));
  EXPECT_EQ(fair_shares({10, 0, 10}, 6), (std::vector<double>{3, 0, 3}));
}

}  // namespace
}  // namespace sprat::io_simulation
