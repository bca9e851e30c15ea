// Copies of a part that differ: noticed before they are saved.
#include "checkpoint/checks/replicas.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/saver.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/checkpoint/model.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::fsdp {
namespace {

using testing::Each;
using testing::HasSubstr;

/// What each rank is told of a save in which the last element of one unit's last state has one bit
/// more on `rank`.
std::vector<std::string> told(const Arrangement& arrangement, std::size_t unit, int rank) {
  const TemporaryFolder folder;
  std::vector<std::string> told(static_cast<std::size_t>(arrangement.ranks), "saved");
  run_virtual_ranks(arrangement.ranks, {}, [&](Communicator& world) {
    HandMade model(arrangement, world.rank());
    model.fill();
    if (world.rank() == rank) {
      float& value = model.held().units[unit].values.back().back();
      value = std::nextafter(value, 2.0f);
    }
    Saver saver(world, model.held(), {.folder = folder.path()});
    try {
      saver.save({.step = 1});
      saver.wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
    world.barrier();
  });
  return told;
}

TEST(Replicas, that_part_are_named_on_every_rank_and_not_saved) {
  const Arrangement pairs{.ranks = 4, .shards = 2};
  EXPECT_THAT(told(pairs, 1, 3),
              Each(HasSubstr("ranks 1 and 3 hold copies of unit \"block\" that differ")));
  EXPECT_THAT(told(pairs, 0, 0),
              Each(HasSubstr("ranks 0 and 2 hold copies of unit \"embed\" that differ")));
  EXPECT_THAT(told({.ranks = 4, .shards = 1}, 2, 2),
              Each(HasSubstr("ranks 0 and 2 hold copies of unit \"block1\" that differ")));
}

TEST(Replicas, of_persistent_parameters_are_compared_under_any_sharding) {
  for (const Arrangement& arrangement :
       {Arrangement{.ranks = 4, .shards = 4}, Arrangement{.ranks = 4, .shards = 2},
        Arrangement{.ranks = 4, .shards = 2, .over_all = true}}) {
    EXPECT_THAT(told(arrangement, 3, 1),
                Each(HasSubstr("ranks 0 and 1 hold copies of unit \"small\" that differ")));
  }
}

TEST(Replicas, parts_that_have_no_copies_may_hold_anything) {
  EXPECT_THAT(told({.ranks = 4, .shards = 4}, 1, 3), Each(std::string("saved")));
}

}  // namespace
}  // namespace sprat::fsdp
