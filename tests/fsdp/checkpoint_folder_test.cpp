// The folder of checkpoints: what stays in it, and whether it can be saved into.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "fsdp/checkpoint/saver.hpp"
#include "sprat/communicator.hpp"
#include "tests/fsdp/checkpoint_model.hpp"
#include "tests/io/temporary_folder.hpp"

namespace sprat::fsdp {
namespace {

using testing::ElementsAre;
namespace fs = std::filesystem;

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

/// Runs `body` with a saver on two ranks that share a model.
template <class Body>
void with_savers(const SaverOptions& options, Body body) {
  run_virtual_ranks(2, {}, [&](Communicator& world) {
    HandMade model({.ranks = 2, .shards = 2}, world.rank());
    Saver saver(world, model.held(), options);
    body(world, saver);
  });
}

TEST(CheckpointFolder, keeps_all_beside_a_save_that_nobody_vouches_for) {
  const TemporaryFolder folder;
  with_savers({.folder = folder.path(), .keep_last = 1}, [](Communicator&, Saver& saver) {
    saver.save({.step = 1});
    saver.save_beside({.step = 2});
    saver.save_beside({.step = 3});
    saver.wait();
  });
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", "step-00000001", "step-00000002", "step-00000003"));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000003");
}

}  // namespace
}  // namespace sprat::fsdp
