// Seeds replay, and thousands of them are well.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/system/simulation/job.hpp"
#include "tests/system/simulation/scenario.hpp"
#include "tests/system/simulation/seeds.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::simulation {
namespace {

using namespace std::chrono_literals;

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

/// Three ranks of one host, of whom the first has most, so that the others have nothing in the
/// later windows; one of them in memory that peers read where it is.
Scenario uneven_gathers(std::uint64_t seed) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.ranks = 3;
  scenario.hosts = "a,a,a";
  scenario.staging_bytes = 640 << 10;  // two windows
  scenario.timeout = 60s;
  scenario.families.emplace_back(scenario.ranks, 0);
  scenario.busy = true;
  Call call{.what = What::all_gatherv, .count = 6'000, .shared = 0b110};
  const std::vector<std::size_t> wanted = {36'000, 6'000, 6'000};
  while (block_counts(call, 3) != wanted) {
    ++call.uneven;
  }
  scenario.steps.assign(4, {.calls = {call}, .waits = {0}});
  // Enough of them that nobody loses the core any more when the first one leaves.
  scenario.steps.insert(scenario.steps.end(), 40, {.calls = {Call{}}, .waits = {0}});
  return scenario;
}

// A rank waited for its peers only if they read its memory in the last window.
TEST(Simulation, a_block_is_its_callers_once_no_window_of_it_is_read) {
  for (std::uint64_t seed = 1; seed <= seeds / 10; ++seed) {
    const Verdict verdict = run_scenario(uneven_gathers(3 * seed), false);
    ASSERT_EQ(verdict.complaint, "") << "of seed " << 3 * seed;
  }
}

TEST(Simulation, seeds_are_well) { EXPECT_EQ(run_seeds(1, seeds, false, "test_simulation"), 0); }

}  // namespace
}  // namespace sprat::simulation
