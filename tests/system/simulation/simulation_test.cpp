// Seeds replay, and thousands of them are well.
#include <gtest/gtest.h>

#include "tests/system/simulation/job.hpp"
#include "tests/system/simulation/scenario.hpp"
#include "tests/system/simulation/seeds.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::simulation {
namespace {

constexpr std::uint64_t seeds = sanitized ? 200 : 1'000, replayed = sanitized ? 10 : 40;

TEST(Simulation, a_seed_replays) {
  for (std::uint64_t seed = 1; seed <= replayed; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    if (scenario.fault.kind == Fault::Kind::kill) {
      continue;  // leaves its dead behind
    }
    const Verdict first = run_scenario(scenario, false), second = run_scenario(scenario, false);
    EXPECT_EQ(first.digest, second.digest) << describe(scenario);
    EXPECT_EQ(first.complaint, second.complaint) << describe(scenario);
  }
}

/// A use after free, disagreements where there were none, the blame on a rank that had done its
/// part, and communicators of different ranks taken for one.
TEST(Simulation, seeds_that_found_something_stay_well) {
  for (const std::uint64_t seed : {444, 989, 1564, 1637, 3007, 3027, 3934, 7922, 9340}) {
    EXPECT_EQ(run_seeds(seed, seed, false, "test_simulation"), 0);
  }
}

TEST(Simulation, seeds_are_well) { EXPECT_EQ(run_seeds(1, seeds, false, "test_simulation"), 0); }

}  // namespace
}  // namespace sprat::simulation
