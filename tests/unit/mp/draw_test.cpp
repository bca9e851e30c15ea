// Simulated schedules as text.
#include "mp/draw.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "mp/simulate.hpp"

namespace sprat::mp {
namespace {

namespace drawn {

using ::testing::HasSubstr;

std::string drawing(const Schedule& schedule, int columns = 120) {
  return draw(schedule, simulate(schedule, uniform_costs(schedule, {})), columns);
}

TEST(PipelineDrawing, is_a_line_a_rank_with_each_span_at_its_time) {
  EXPECT_EQ(drawing(make_schedule(schedule_named("gpipe"), {.ranks = 2, .microbatches = 2})),
            "rank 0 F0 F1 .........B0--- B1---\n"
            "rank 1 ...F0 F1 B0--- B1--- ......\n"
            "F forward, B backward\n");
}

TEST(PipelineDrawing, of_long_schedules_keeps_letters_and_width) {
  const Schedule schedule =
      make_schedule(schedule_named("gpipe"), {.ranks = 12, .microbatches = 100});
  std::istringstream lines(drawing(schedule, 80));
  std::string line;
  for (int rank = 0; rank < 12; ++rank) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_LE(line.size(), 80u) << "rank " << rank;
    EXPECT_THAT(line, HasSubstr(rank < 10 ? "rank  " : "rank 1"));
    EXPECT_THAT(line, HasSubstr("FFFF"));
    EXPECT_THAT(line, HasSubstr("BBBB"));
  }
}

TEST(PipelineDrawing, tells_the_stages_of_a_rank_apart) {
  const Schedule schedule{.name = "by hand",
                          .microbatches = 1,
                          .rank_of_stage = {0, 0},
                          .actions = {{{.op = Op::forward, .stage = 0, .microbatch = 0},
                                       {.op = Op::forward, .stage = 1, .microbatch = 0},
                                       {.op = Op::backward_input, .stage = 1, .microbatch = 0},
                                       {.op = Op::backward_input, .stage = 0, .microbatch = 0},
                                       {.op = Op::backward_weight, .stage = 1, .microbatch = 0},
                                       {.op = Op::backward_weight, .stage = 0, .microbatch = 0}}}};
  EXPECT_EQ(drawing(schedule),
            "rank 0 F0 f0 i0 I0 w0 W0\n"
            "F forward, I gradient of the input, W gradients of the weights; small letters: every "
            "second stage of a rank\n");
}

TEST(PipelineDrawing, of_nothing_is_empty_lines) {
  EXPECT_EQ(drawing({.name = "none", .microbatches = 0, .rank_of_stage = {0}, .actions = {{}}}),
            "rank 0 \n\n");
}

}  // namespace drawn
}  // namespace
}  // namespace sprat::mp
