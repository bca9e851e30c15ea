// One horizon for all ranks, and what is told of it.
#include "train/loading_horizon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sprat::train {
namespace {

TEST(LoadingHorizon, is_on_every_rank_the_best_for_the_rank_that_stalls_longest) {
  const std::vector<HorizonChoice> wanted = {{.horizon = 1, .steps = 3, .stalls = {0, 0, 0}},
                                             {.horizon = 3, .steps = 2, .stalls = {5, 4, 1}},
                                             {.horizon = 2, .steps = 1, .stalls = {7, 2, 2}}};
  run_virtual_ranks(3, Config{}, [&](Communicator& world) {
    const auto all = agree_on_horizon(world, wanted[std::size_t(world.rank())], 3);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->horizon, 3);
    EXPECT_EQ(all->steps, 3);
    EXPECT_THAT(all->stalls, testing::ElementsAre(7, 4, 2));
  });
}

// A horizon that one rank wants may make another wait for stores.
TEST(LoadingHorizon, is_not_one_that_another_rank_stalls_longer_with) {
  const std::vector<HorizonChoice> wanted = {{.horizon = 2, .steps = 3, .stalls = {9, 2, 6}},
                                             {.horizon = 3, .steps = 3, .stalls = {9, 4, 3}}};
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    const auto all = agree_on_horizon(world, wanted[std::size_t(world.rank())], 3);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->horizon, 2);
    EXPECT_THAT(all->stalls, testing::ElementsAre(9, 4, 6));
  });
}

TEST(LoadingHorizon, stays_open_where_a_rank_has_measured_nothing) {
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    const auto mine = world.rank() == 0 ? std::optional<HorizonChoice>()
                                        : HorizonChoice{.horizon = 1, .stalls = {0, 0}};
    EXPECT_FALSE(agree_on_horizon(world, mine, 2));
  });
}

TEST(LoadingHorizon, is_open_where_activations_leave_and_none_is_given) {
  EXPECT_FALSE(horizon_is_open({}));
  EXPECT_TRUE(horizon_is_open({.offload = true}));
  EXPECT_FALSE(horizon_is_open({.offload = true, .horizon = 3}));
  EXPECT_FALSE(horizon_is_open({.offload = true, .horizon_limit = 1}));
  EXPECT_EQ(largest_horizon({.horizon = 3}), 3);
  EXPECT_EQ(largest_horizon({.horizon_limit = 5}), 5);
}

TEST(LoadingHorizon, is_told_with_its_reason) {
  const ActivationConfig config = {.offload = true, .horizon_limit = 3};
  EXPECT_EQ(
      horizon_text(config, HorizonChoice{.horizon = 2, .steps = 0.12, .stalls = {0.03, 0.001, 0}},
                   2),
      "activations come back with a horizon of 2 tensors: by the times of step 2, horizons 1 to 3 "
      "stall 30.0, 1.0, 0.0 ms beside 120.0 ms of computing");
  EXPECT_EQ(horizon_text(config, std::nullopt, 2),
            "activations come back with a horizon of 3 tensors: on a rank none had left before it "
            "was wanted, so nothing says that less would do");
}

}  // namespace
}  // namespace sprat::train
