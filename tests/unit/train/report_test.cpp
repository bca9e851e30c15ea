// What a run tells: exact values in JSON, sensible lines, a curve that goes down when the loss
// does.
#include "train/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sprat/error.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;
using testing::Not;

StepRecord record(int step, double loss) {
  StepRecord one;
  one.step = step;
  one.loss = loss;
  one.tokens_per_s = 2000;
  one.grad_norm = 0.5;
  one.exposed_comm_ms = 250;
  return one;
}

TEST(Report, hexadecimal_holds_every_bit) {
  for (const double value : {1.0 / 3, 5.545177444479562, 1e-300}) {
    EXPECT_EQ(std::strtod(hexadecimal(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(hexadecimal(3.0), "0x1.8p+1");
}

TEST(Report, a_line_has_the_agreed_keys_in_order) {
  const std::string line = to_json(record(3, 2.5));
  EXPECT_EQ(line, R"({"step":3,"loss":2.5,"loss_hex":"0x1.4p+1","tokens_per_s":2000.0,)"
                  R"("grad_norm":0.5,"exposed_comm_ms":250.0})");
  StepRecord with = record(4, 2.5);
  with.validation_loss = 2.75;
  EXPECT_EQ(nlohmann::json::parse(to_json(with)).at("validation_loss"), 2.75);
}

TEST(Report, stays_json_when_the_loss_is_not_finite) {
  const auto line = nlohmann::json::parse(to_json(record(1, std::nan(""))));
  EXPECT_TRUE(line.at("loss").is_null());
}

TEST(Report, a_path_that_cannot_be_written_is_named) {
  EXPECT_THROW(ReportFile("/nowhere/at/all.jsonl"), Error);
  EXPECT_THROW(ReportFile::try_place("/nowhere/at/all.jsonl"), Error);
  EXPECT_THROW(ReportFile::try_place("/tmp"), Error) << "it is a folder";
}

TEST(Report, a_place_that_is_tried_stays_as_it_is) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("sprat-tried-" + std::to_string(getpid()) + ".jsonl");
  ReportFile::try_place(path);
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "kept";
  ReportFile::try_place(path);
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
  std::filesystem::remove(path);
}

TEST(Report, goes_on_after_the_steps_that_a_resumed_run_has_done) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("sprat-report-" + std::to_string(getpid()) + ".jsonl");
  {
    ReportFile report(path);
    for (int step = 1; step <= 5; ++step) {
      report.write(record(step, 3));
    }
  }
  std::ofstream(path, std::ios::app) << R"({"step":6,"lo)";  // cut short
  ReportFile(path, 3).write(record(4, 2));
  std::ifstream file(path);
  std::vector<int> steps;
  for (std::string line; std::getline(file, line);) {
    steps.push_back(nlohmann::json::parse(line).at("step"));
  }
  std::filesystem::remove(path);
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4}));
}

TEST(Report, says_what_was_skipped_and_at_which_scale) {
  StepRecord skipped = record(1, 3);
  skipped.skipped = true;
  skipped.loss_scale = 64;
  const auto line = nlohmann::json::parse(to_json(skipped));
  EXPECT_EQ(line.at("skipped"), true);
  EXPECT_EQ(line.at("loss_scale"), 64);
}

TEST(Progress, speaks_first_last_at_validation_and_every_two_seconds) {
  using namespace std::chrono_literals;
  Progress::Clock::time_point now{};
  Progress progress(0, 100, now);
  EXPECT_EQ(progress.status("training").steps, 100);
  EXPECT_FALSE(progress.status("training").loss);
  EXPECT_TRUE(progress.step(record(1, 5), now += 500ms));
  EXPECT_EQ(progress.reason(), Progress::Reason::milestone);
  EXPECT_FALSE(progress.step(record(2, 5), now += 500ms));
  EXPECT_FALSE(progress.step(record(3, 5), now += 500ms));
  StepRecord validated = record(4, 5);
  validated.validation_loss = 4.5;
  const auto line = progress.step(validated, now += 500ms);
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("step   4/100"));
  EXPECT_THAT(*line, HasSubstr("validation 4.5"));
  EXPECT_THAT(*line, HasSubstr("2.0k tokens/s"));
  EXPECT_THAT(*line, HasSubstr("exposed communication 50 %"));  // 3 * 250 ms of 1.5 s
  EXPECT_THAT(*line, HasSubstr("48 s left"));                   // 96 steps at half a second
  EXPECT_FALSE(progress.step(record(5, 5), now += 1999ms));
  EXPECT_TRUE(progress.step(record(6, 5), now += 1ms));
  EXPECT_EQ(progress.reason(), Progress::Reason::time_has_passed);
  const RunStatus status = progress.status("saving");
  EXPECT_EQ(status.step, 6);
  EXPECT_EQ(status.loss, 5);
  EXPECT_EQ(status.doing, "saving");
  EXPECT_NEAR(*status.seconds_left, 4.0 / 6 * 94, 1e-9);
  EXPECT_TRUE(progress.step(record(100, 5), now += 1ms));
}

TEST(Progress, warns_once_of_a_tier_that_is_waited_for) {
  using namespace std::chrono_literals;
  Progress::Clock::time_point now{};
  Progress progress(0, 100, now, "file:/scratch");
  const auto line = [&](int step, double load_stall_ms, double store_wait_ms) {
    StepRecord one = record(step, 5);
    one.load_stall_ms = load_stall_ms;
    one.store_wait_ms = store_wait_ms;
    return progress.step(one, now += 2s).value();
  };
  const auto warns = HasSubstr("warning: 40 % of the time ranks wait for activations");
  EXPECT_THAT(line(1, 800, 0), Not(HasSubstr("warning")));  // the first step makes the files
  EXPECT_THAT(line(2, 0, 190), Not(HasSubstr("warning")));
  const std::string warned = line(3, 300, 500);
  EXPECT_THAT(warned, HasSubstr("stall 40 %"));
  EXPECT_THAT(warned, warns);
  EXPECT_EQ(progress.reason(), Progress::Reason::warning);
  EXPECT_THAT(warned, HasSubstr("file:/scratch"));
  EXPECT_THAT(line(4, 300, 500), Not(HasSubstr("warning")));
}

TEST(Progress, of_a_run_that_offloads_nothing_knows_no_stall) {
  Progress::Clock::time_point now{};
  EXPECT_THAT(Progress(0, 1, now).step(record(1, 5), now).value(), Not(HasSubstr("stall")));
}

TEST(Progress, asks_why_where_data_is_waited_for) {
  using namespace std::chrono_literals;
  Progress::Clock::time_point now{};
  Progress progress(0, 100, now);
  const auto line = [&](int step, double data_wait_ms) {
    StepRecord one = record(step, 5);
    one.data_wait_ms = data_wait_ms;
    return progress.step(one, now += 2s).value();
  };
  EXPECT_THAT(line(1, 1000), HasSubstr("data 50 %"));
  EXPECT_FALSE(progress.waits_for_data()) << "every run waits for its first batch";
  EXPECT_THAT(line(2, 100), HasSubstr("data 5 %"));
  EXPECT_FALSE(progress.waits_for_data());
  EXPECT_THAT(line(3, 120), HasSubstr("data 6 %"));
  EXPECT_TRUE(progress.waits_for_data());
  EXPECT_THAT(Progress(0, 1, now).step(record(1, 5), now).value(), Not(HasSubstr("data")));
}

TEST(Report, tells_of_data_that_was_waited_for) {
  StepRecord one = record(3, 5);
  EXPECT_FALSE(nlohmann::json::parse(to_json(one)).contains("data_wait_ms"));
  one.data_wait_ms = 12.5;
  one.data_limit = "storage is slow";
  const auto line = nlohmann::json::parse(to_json(one));
  EXPECT_EQ(line.at("data_wait_ms"), 12.5);
  EXPECT_EQ(line.at("data_limit"), "storage is slow");
}

TEST(Plot, falls_from_the_first_row_to_the_last) {
  std::vector<StepRecord> records;
  for (int step = 1; step <= 200; ++step) {
    records.push_back(record(step, 5.0 - 0.02 * step));
  }
  records.back().validation_loss = 4.0;
  const std::string plot = plot_losses(records, 40, 10);
  std::vector<std::string> lines;
  std::istringstream stream(plot);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 13u) << plot;
  EXPECT_EQ(lines[1].find('*'), 9u) << plot;
  EXPECT_EQ(lines[10].find_last_of('*'), 48u) << plot;
  EXPECT_EQ(lines[3].find('o'), 48u) << plot;
  EXPECT_THAT(lines[12], HasSubstr("200"));
}

TEST(Plot, begins_at_the_first_step_of_a_resumed_run) {
  EXPECT_THAT(plot_losses({record(41, 5), record(42, 4), record(43, 3)}, 40, 10),
              HasSubstr("         4143\n"));
}

TEST(Plot, survives_one_step_and_losses_that_are_not_finite) {
  EXPECT_THAT(plot_losses({record(1, 5)}, 40, 10), HasSubstr("*"));
  EXPECT_EQ(plot_losses({record(1, std::nan(""))}, 40, 10), "");
  EXPECT_EQ(plot_losses({}, 40, 10), "");
}

}  // namespace
}  // namespace sprat::train
