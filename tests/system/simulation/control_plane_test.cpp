// How the control plane grows with the job.
#include "tests/system/simulation/control_plane.hpp"

#include <gtest/gtest.h>

#include "tests/system/simulation/held_by_rank.hpp"

namespace sprat::simulation {
namespace {

TEST(ControlPlane, costs_a_rank_few_frames_however_large_the_job_is) {
  for (const int hosts : {8, 64, 256}) {
    const ControlPlaneCost cost = measure_control_plane(hosts, 8);
    // With an answer for each part that travels once to each host.
    EXPECT_LE(cost.said.frames, cost.rounds + 3) << hosts;
    EXPECT_LE(cost.heard.frames, cost.rounds + 4) << hosts;
    EXPECT_LE(cost.said.bytes, 1'500) << hosts;
    // What all ranks must know of each, and what only those of its host use: in 160 bytes. Where it
    // is long, one rank of each host gets it.
    EXPECT_LE(cost.heard.bytes, 160.0 * cost.ranks / (hosts > 64 ? 8 : 1) + 4'096) << hosts;
    EXPECT_LE(cost.leaving.frames, 1'000) << hosts;  // a lot in each millisecond at most
    EXPECT_LE(cost.leaving.frames, cost.ranks) << hosts;
    EXPECT_LE(cost.loss, cost.ranks) << hosts;
    EXPECT_LE(cost.job_stall, 3 * cost.ranks) << hosts;
    EXPECT_LE(cost.group_stall, 3 * 8) << hosts;
  }
}

// Of most ranks a rank keeps no more than how they are found, once they are wanted.
TEST(HeldByRank, is_few_bytes_for_each_other_rank) {
  const HeldByRank held = measure_held_by_rank(256, 8);
  if (held.context == 0) {
    GTEST_SKIP() << "needs glibc's malloc, which counts; sanitizers have another";
  }
  EXPECT_LE(held.context, 230.0 * 2'048);
  EXPECT_LE(held.communicator, 90.0 * 2'048);
}

}  // namespace
}  // namespace sprat::simulation
