// Seeds replay, and thousands of them are well.
#include <gtest/gtest.h>

#include "tests/simulation/job.hpp"
#include "tests/simulation/scenario.hpp"
#include "tests/simulation/seeds.hpp"

namespace sprat::simulation {
namespace {

TEST(Simulation, a_seed_replays) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    if (scenario.fault.kind == Fault::Kind::kill) {
      continue;  // leaves its dead behind
    }
    const Verdict first = run_scenario(scenario, false), second = run_scenario(scenario, false);
    EXPECT_EQ(first.digest, second.digest) << describe(scenario);
    EXPECT_EQ(first.complaint, second.complaint) << describe(scenario);
  }
}

TEST(Simulation, a_thousand_seeds_are_well) {
  EXPECT_EQ(run_seeds(1, 1'000, false, "test_simulation"), 0);
}

}  // namespace
}  // namespace sprat::simulation
