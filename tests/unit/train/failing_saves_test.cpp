// Saves that the disk refuses while a run trains, and where it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/train/small_text.hpp"
#include "train/checkpoints.hpp"
#include "train/train.hpp"

namespace sprat::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

std::vector<UnitSpec> small_unit() {
  return {{.name = "unit",
           .parameters = {{.name = "w", .shape = {4, 8}, .initial = [](std::uint64_t index) {
                             return static_cast<float>(index);
                           }}}}};
}

/// A run's checkpoints, into whose folder nothing can be written while a file has its name.
class FailingSaves : public testing::TestWithParam<bool> {
 protected:
  template <class Body>
  void with_checkpoints(Body body) {
    run_virtual_ranks(1, Config{}, [&](Communicator& world) {
      ShardedModel model(world, small_unit(), {});
      Checkpoints checkpoints(
          world, model, {.folder = folder_, .every = 1, .keep = 2, .asynchronous = GetParam()},
          [this](const std::string& line) { said_.push_back(line); });
      body(checkpoints);
    });
  }
  /// Behind the run's back.
  void put_file_in_place() const {
    fs::rename(folder_, folder_.string() + ".away");
    std::ofstream(folder_) << "no folder";
  }
  void put_folder_back() const {
    fs::remove(folder_);
    fs::rename(folder_.string() + ".away", folder_);
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "saved";
  std::vector<std::string> said_;
};

TEST_P(FailingSaves, are_told_and_tried_again_when_the_next_is_due) {
  with_checkpoints([this](Checkpoints& checkpoints) {
    checkpoints.step({.step = 1}, nullptr);
    checkpoints.complete();
    put_file_in_place();
    checkpoints.step({.step = 2}, nullptr);
    checkpoints.complete();
    EXPECT_THAT(said_, ElementsAre(HasSubstr("checkpoint at step 2 failed, training goes on: ")));
    put_folder_back();
    checkpoints.step({.step = 3}, nullptr);
    checkpoints.finish({.step = 3});
  });
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_TRUE(fs::exists(folder_ / "step-00000001/manifest.json"));
  EXPECT_FALSE(fs::exists(folder_ / "step-00000002"));
  EXPECT_TRUE(fs::exists(folder_ / "step-00000003/manifest.json"));
}

TEST_P(FailingSaves, end_the_run_where_no_other_comes) {
  with_checkpoints([this](Checkpoints& checkpoints) {
    checkpoints.step({.step = 1}, nullptr);
    checkpoints.complete();
    put_file_in_place();
    try {
      checkpoints.finish({.step = 2});
      ADD_FAILURE() << "the last save did not fail";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
    }
    EXPECT_THAT(said_, IsEmpty());
  });
}

INSTANTIATE_TEST_SUITE_P(Of, FailingSaves, testing::Bool(), [](const auto& asynchronous) {
  return asynchronous.param ? "asynchronous" : "synchronous";
});

TEST(FailingRun, trains_to_its_end_and_fails_there) {
  const TemporaryFolder folder;
  write_small_text(folder / "text.txt");
  const std::string config = folder / "config.json";
  std::ofstream(config) << R"({"model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
    "data": {"files": ["text.txt"]}, "checkpoint": {"folder": "saved", "every": 2},
    "train": {"steps": 5, "batch": 8, "validate_every": 0, "sample_bytes": 0}})";
  // No link takes the place of a folder that is not empty, which nothing looks for before a save.
  fs::create_directories(folder / "saved/latest/occupied");
  testing::internal::CaptureStdout();
  std::string failure;
  try {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) { run(world, {.config = config}); });
  } catch (const Error& error) {
    failure = error.what();
  }
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("checkpoint at step 2 failed, training goes on: "));
  EXPECT_THAT(output, HasSubstr("checkpoint at step 4 failed, training goes on: "));
  EXPECT_THAT(failure, HasSubstr("saved/latest"));
}

}  // namespace
}  // namespace sprat::train
