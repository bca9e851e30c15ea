// Reports as lines: what is written comes back, and what others wrote is refused by line.
#include "io/report/report_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sprat/error.hpp"
#include "tests/unit/io/report/history.hpp"

namespace sprat::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string report_of(int rank, const StorageFacts& facts, const std::vector<Interval>& intervals) {
  std::string text = report_head_json(rank, facts) + "\n";
  Diagnoser diagnoser(facts);
  for (const Interval& interval : intervals) {
    diagnoser.add(interval);
    text += interval_json(interval, diagnoser.diagnosis()) + "\n";
  }
  return text;
}

TEST(ReportLines, come_back_as_they_were) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    HistoryMaker maker(seed);
    const auto change = scenarios()[seed % scenarios().size()].begin(maker);
    maker.facts().metadata_iops = 1500;
    maker.facts().about = "Lustre (FSx assumed: no)";
    if (seed % 2 == 0) {
      maker.facts().targets = 40;
    }
    maker.facts().lone_files = {{3, "/fsx/a \"b\""}};
    std::vector<Interval> intervals;
    for (int second = 0; second < 20; ++second) {
      intervals.push_back(maker.healthy(second));
      change(intervals.back());
      intervals.back().targets.front().target = -2;
      intervals.back().step_seconds = {0.5, 0.25};
      intervals.back().gpu_busy = 0.75;
    }
    const SavedReport saved = parse_report("r.jsonl", report_of(7, maker.facts(), intervals));
    EXPECT_EQ(saved.report.rank, 7);
    EXPECT_EQ(saved.report.intervals, intervals);
    EXPECT_EQ(saved.facts.system, maker.facts().system);
    EXPECT_EQ(saved.facts.hosts, maker.facts().hosts);
    EXPECT_EQ(saved.facts.about, maker.facts().about);
    EXPECT_EQ(saved.facts.targets, maker.facts().targets);
    EXPECT_EQ(saved.facts.lone_files, maker.facts().lone_files);
    EXPECT_EQ(saved.facts.metadata_iops, maker.facts().metadata_iops);
  }
}

TEST(ReportLines, what_was_not_measured_is_not_written) {
  const std::string line = interval_json(Interval{}, {});
  EXPECT_THAT(line, Not(HasSubstr("nic_bytes")));
  EXPECT_THAT(line, Not(HasSubstr("gpu_busy")));
  EXPECT_THAT(line, Not(HasSubstr("cores")));
  EXPECT_THAT(line, HasSubstr(R"("limit":"watching")"));
}

TEST(ReportLines, last_line_of_a_run_that_was_killed_is_left_out) {
  const std::string whole = report_of(0, {}, std::vector<Interval>(3));
  const SavedReport saved = parse_report("r", whole.substr(0, whole.size() - 10));
  EXPECT_EQ(saved.report.intervals.size(), 2u);
}

TEST(ReportLines, what_is_wrong_is_told_with_its_line) {
  const std::string head = report_head_json(0, {}) + "\n";
  const std::pair<std::string, const char*> wrong[] = {
      {"", "is empty"},
      {"no json\n", "r line 1 is no JSON"},
      {"[1]\n", "r line 1 is no JSON object"},
      {"{}\n", "version 0"},
      {"{\"sprat_report\":2}\n", "version 2"},
      {"{\"sprat_report\":1,\"hosts\":0}\n", "0 hosts"},
      {"{\"sprat_report\":1,\"fsx\":\"X\"}\n", "no FSx file system"},
      {head + "{\"seconds\":-1}\n", "r line 2 has a \"seconds\""},
      {head + "{\"seconds\":0}\n", "no length"},
      {head + "{\"samples\":1.5}\n", "\"samples\" that is no whole number"},
      {head + "{\"targets\":{}}\n", "\"targets\" that is no list"},
      {head + "{\"targets\":[{\"target\":4294967296}]}\n", "32 bits"},
      {head + "{\"stages\":[{\"name\":3}]}\n", "\"name\" that is no text"},
      {head + "{\"step_seconds\":[\"a\"]}\n", "step_seconds"},
      {head + "{\"bytes\":3}\n", "no JSON object"},
      {head + "broken\n{}\n", "r line 2 is no JSON"}};
  for (const auto& [text, why] : wrong) {
    try {
      parse_report("r", text);
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(why)) << text;
    }
  }
}

TEST(ReportLines, people_read_a_line_a_second) {
  Interval one{.begin_s = 11, .samples = 1240};
  one.bytes = {.file_system = 812'000'000, .host_cache = 90'000'000};
  one.targets = {{.target = 1, .p95_s = 12.3e-3}};
  one.in_flight = 12;
  one.in_flight_cap = 16;
  one.consumer_wait = 0.031;
  one.budget_bytes = 100;
  one.budget_used_bytes = 61;
  const Diagnosis diagnosis{{{Limit::compute, "compute-bound", ""}}};
  EXPECT_EQ(
      interval_text(one, diagnosis),
      "    12 s  1,240 samples/s  storage 812 MB/s, host cache 90.0  wait 3 %  in flight 12/16  "
      "p95 12.3 ms  budget 61 %  | compute-bound");
}

}  // namespace
}  // namespace sprat::io
