// What `sprat io diagnose` says of reports.
#include "cli/io/diagnose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sprat/error.hpp"
#include "tests/unit/io/report/history.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::cli {
namespace {

using ::testing::HasSubstr;

/// Writes the report of a rank that is healthy for a minute, and then limited by decoding.
std::string write_report(const std::string& path, int rank) {
  io::HistoryMaker maker(static_cast<std::uint64_t>(rank));
  maker.facts().about = "Lustre (FSx assumed: no)";
  const auto change = io::begin_decode(maker);
  std::ofstream file(path);
  file << io::report_head_json(rank, maker.facts()) << '\n';
  for (int second = 0; second < 120; ++second) {
    io::Interval one = maker.healthy(second);
    if (second >= 60) {
      change(one);
    }
    file << io::interval_json(one, {}) << '\n';
  }
  return path;
}

TEST(DiagnoseReports, limits_are_told_with_their_seconds) {
  const TemporaryFolder folder;
  const std::string text = diagnosis_text({read_report(write_report(folder / "0.jsonl", 0))});
  EXPECT_THAT(text, HasSubstr("rank 0, 120 s, Lustre (FSx assumed: no)\n"));
  EXPECT_THAT(text, HasSubstr("  from    30 s  compute-bound"));
  EXPECT_THAT(text, HasSubstr("  from    90 s  CPU-bound in decode"));
  EXPECT_THAT(text, HasSubstr("LowGPUUtilization  not measured"));
}

TEST(DiagnoseReports, machines_read_the_same) {
  const TemporaryFolder folder;
  const auto json =
      nlohmann::json::parse(diagnosis_json({read_report(write_report(folder / "0.jsonl", 0)),
                                            read_report(write_report(folder / "1.jsonl", 1))}));
  ASSERT_EQ(json["ranks"].size(), 2u);
  EXPECT_EQ(json["ranks"][1]["limits"].back()["causes"][0]["limit"], "decode");
  EXPECT_EQ(json["rules"].size(), 5u);
}

TEST(DiagnoseReports, a_rank_reports_once) {
  const TemporaryFolder folder;
  const DiagnosedReport report = read_report(write_report(folder / "0.jsonl", 0));
  EXPECT_THROW(diagnosis_text({report, report}), Error);
}

TEST(DiagnoseReports, what_cannot_be_read_is_named) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder / "nowhere", folder.path()}) {
    try {
      read_report(path);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace sprat::cli
