// Simulated schedules as SVG.
#include "cli/pipeline/picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "mp/simulate.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::cli {
namespace {

namespace pipeline_picture {

using ::testing::HasSubstr;
using ::testing::Not;

mp::Schedule gpipe(int ranks, int microbatches) {
  return mp::make_schedule(mp::schedule_named("gpipe"),
                           {.ranks = ranks, .microbatches = microbatches});
}

mp::Timeline simulated(const mp::Schedule& schedule, double latency = 0) {
  mp::PipelineCosts costs = uniform_costs(schedule, {});
  costs.latency = latency;
  return simulate(schedule, costs);
}

TEST(PipelinePicture, has_a_lane_a_rank_and_says_what_each_span_is) {
  const mp::Schedule schedule = gpipe(2, 2);
  const std::string svg = to_svg(schedule, simulated(schedule));
  EXPECT_THAT(svg, HasSubstr("2 ranks, 2 stages, 2 micro-batches: 9 s, 33.3 % bubble"));
  for (const char* part : {">rank 0<", ">rank 1<", ">active 2<", ">forward<", ">backward<",
                           "<title>1B1, 5 s to 7 s</title>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(svg, Not(HasSubstr(">store<"))) << "the legend has what occurs";
}

TEST(PipelinePicture, shows_messages_below_computation) {
  const mp::Schedule schedule = mp::two_sends();
  const std::string svg = to_svg(schedule, simulated(schedule, 3));
  EXPECT_THAT(svg, HasSubstr("<title>0SEND_F1, 2 s to 5 s</title>"));
  EXPECT_THAT(svg, HasSubstr(">message<"));
}

TEST(PipelinePicture, shows_the_first_ranks_of_many_and_says_so) {
  const mp::Schedule schedule = gpipe(70, 1);
  const std::string svg = to_svg(schedule, simulated(schedule));
  EXPECT_THAT(svg, HasSubstr("; ranks 0-63 of 70"));
  EXPECT_THAT(svg, Not(HasSubstr(">rank 64<")));
}

}  // namespace pipeline_picture
}  // namespace
}  // namespace sprat::cli
