// What every pipeline schedule holds, whatever its kind.
#include "mp/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace sprat::mp {
namespace {

TEST(Schedule, each_rank_has_each_microbatch_forward_and_backward) {
  const Schedule schedule = make_schedule(schedule_named("gpipe"), {.ranks = 3, .microbatches = 4});
  ASSERT_EQ(schedule.ranks(), 3);
  ASSERT_EQ(schedule.stages(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      for (const Op op : {Op::forward, Op::backward}) {
        const Action action{.op = op, .stage = rank, .microbatch = microbatch};
        EXPECT_EQ(std::ranges::count(schedule.actions[std::size_t(rank)], action), 1)
            << "rank " << rank << ", micro-batch " << microbatch;
      }
    }
  }
}

}  // namespace
}  // namespace sprat::mp
