// A whole run on ranks that are threads: the same losses however parameters are sharded.
#include "train/train.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/error.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;

class Run : public testing::Test {
 protected:
  Run() {
    std::string name = (std::filesystem::temp_directory_path() / "sprat-train-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("no temporary folder");
    }
    folder_ = name;
    std::ofstream text(folder_ / "text.txt");
    for (int line = 0; line < 200; ++line) {
      text << "line " << line << " of a text that repeats itself.\n";
    }
  }
  ~Run() override { std::filesystem::remove_all(folder_); }

  std::string config(int degree) const {
    const auto path = folder_ / ("degree" + std::to_string(degree) + ".json");
    std::ofstream(path) << R"({
      "model": {"layers": 2, "width": 16, "heads": 2, "context": 16},
      "data": {"files": ["text.txt"]},
      "train": {"steps": 12, "batch": 8, "learning_rate": 0.01, "validate_every": 5,
                "validation_samples": 10, "sample_bytes": 20},
      "parallel": {"hybrid_shard_degree": )"
                        << degree << "}}";
    return path;
  }

  struct Outcome {
    std::vector<nlohmann::json> lines;
    std::string output;
    std::vector<std::string> loss_hex() const {
      std::vector<std::string> all;
      for (const auto& line : lines) {
        all.push_back(line.at("loss_hex"));
      }
      return all;
    }
  };
  Outcome train(int ranks, int degree, std::optional<int> steps = {}) const {
    const TrainRequest request{
        .config = config(degree), .steps = steps, .report = (folder_ / "report.jsonl").string()};
    testing::internal::CaptureStdout();
    run_virtual_ranks(ranks, Config{}, [&](Communicator& world) { run(world, request); });
    Outcome outcome;
    outcome.output = testing::internal::GetCapturedStdout();
    std::ifstream report(*request.report);
    for (std::string line; std::getline(report, line);) {
      outcome.lines.push_back(nlohmann::json::parse(line));
    }
    return outcome;
  }

  std::filesystem::path folder_;
};

TEST_F(Run, losses_have_the_same_bits_at_every_sharding_degree) {
  const auto reference = train(4, 1);
  ASSERT_EQ(reference.lines.size(), 12u);
  for (const int degree : {2, 4}) {
    const auto other = train(4, degree);
    EXPECT_EQ(other.loss_hex(), reference.loss_hex()) << "degree " << degree;
    EXPECT_EQ(other.lines.back().at("validation_loss"),
              reference.lines.back().at("validation_loss"));
  }
}

TEST_F(Run, learns) {
  const auto outcome = train(2, 2);
  EXPECT_LT(outcome.lines.back().at("loss"), 0.8 * outcome.lines.front().at("loss").get<double>());
  EXPECT_THAT(outcome.output, HasSubstr("step 12/12"));
  EXPECT_THAT(outcome.output, HasSubstr("what to try next"));
}

TEST_F(Run, other_numbers_of_ranks_begin_with_the_same_loss_but_for_rounding) {
  const double one = train(1, 1, 1).lines.front().at("loss");
  const double four = train(4, 2, 1).lines.front().at("loss");
  // Same samples, same parameters; only sums over rows are grouped differently.
  EXPECT_NEAR(one, four, 128 * 1.2e-7 * one);
}

TEST_F(Run, steps_cut_a_run_short_on_the_same_path) {
  const auto whole = train(2, 1).loss_hex();
  const auto start = train(2, 1, 5).loss_hex();
  EXPECT_EQ(start, std::vector(whole.begin(), whole.begin() + 5));
}

TEST_F(Run, ranks_that_do_not_divide_the_batch_are_refused) {
  try {
    train(3, 1);
    FAIL() << "ran";
  } catch (const Error& error) {
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("train.batch 8"));
  }
}

}  // namespace
}  // namespace sprat::train
