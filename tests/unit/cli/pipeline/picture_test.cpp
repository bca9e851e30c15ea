// Simulated schedules as SVG and as traces.
#include "cli/pipeline/picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/pipeline/trace.hpp"
#include "mp/simulate.hpp"

namespace sprat::cli {
namespace {

namespace pipeline_picture {

using ::testing::HasSubstr;
using ::testing::Not;

mp::Schedule gpipe(int ranks, int microbatches) {
  return mp::make_schedule(mp::schedule_named("gpipe"),
                           {.ranks = ranks, .microbatches = microbatches});
}

mp::SimulatedSchedule simulated(const mp::Schedule& schedule, double latency = 0) {
  mp::PipelineCosts costs = uniform_costs(schedule, {});
  costs.latency = latency;
  return simulate(schedule, costs);
}

/// Two messages that are on their way together.
mp::Schedule two_sends() {
  using mp::Op;
  return {.name = "by hand",
          .microbatches = 2,
          .rank_of_stage = {0, 1},
          .actions = {{{.op = Op::forward, .stage = 0, .microbatch = 0},
                       {.op = Op::send_forward, .stage = 0, .microbatch = 0},
                       {.op = Op::forward, .stage = 0, .microbatch = 1},
                       {.op = Op::send_forward, .stage = 0, .microbatch = 1}},
                      {{.op = Op::receive_forward, .stage = 1, .microbatch = 0},
                       {.op = Op::receive_forward, .stage = 1, .microbatch = 1}}}};
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
  const mp::Schedule schedule = two_sends();
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

TEST(PipelineTrace, has_a_named_process_for_each_rank_and_microseconds) {
  const mp::Schedule schedule = gpipe(2, 1);
  const auto trace = nlohmann::json::parse(to_trace(schedule, simulated(schedule)));
  std::map<std::string, nlohmann::json> spans;
  std::map<int, std::string> processes;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      spans[event["name"]] = event;
    } else if (event["name"] == "process_name") {
      processes[event["pid"]] = event["args"]["name"];
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans["1B0"]["ts"], 2e6);
  EXPECT_EQ(spans["1B0"]["dur"], 2e6);
  EXPECT_EQ(spans["1B0"]["pid"], 1);
  EXPECT_EQ(spans["1B0"]["tid"], 0);
}

TEST(PipelineTrace, gives_what_is_under_way_together_threads_of_its_own) {
  const mp::Schedule schedule = two_sends();
  const auto trace = nlohmann::json::parse(to_trace(schedule, simulated(schedule, 3)));
  std::map<std::pair<int, int>, double> free;
  std::map<std::pair<int, int>, std::string> threads;
  for (const auto& event : trace["traceEvents"]) {
    const std::pair<int, int> thread{event["pid"], event["tid"]};
    if (event["name"] == "thread_name") {
      threads[thread] = event["args"]["name"];
    } else if (event["ph"] == "X") {
      EXPECT_GE(event["ts"], free[thread]) << event;
      free[thread] = double(event["ts"]) + double(event["dur"]);
    }
  }
  EXPECT_EQ(
      threads,
      (std::map<std::pair<int, int>, std::string>{
          {{0, 0}, "computes"}, {{0, 1}, "messages"}, {{0, 2}, "messages"}, {{1, 0}, "computes"}}));
}

}  // namespace pipeline_picture
}  // namespace
}  // namespace sprat::cli
