// Timelines as traces.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "mp/simulate.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::mp {
namespace {

namespace traced {

Schedule gpipe(int ranks, int microbatches) {
  return make_schedule(schedule_named("gpipe"), {.ranks = ranks, .microbatches = microbatches});
}

Timeline simulated(const Schedule& schedule, double latency = 0) {
  PipelineCosts costs = uniform_costs(schedule, {});
  costs.latency = latency;
  return simulate(schedule, costs);
}

TEST(PipelineTrace, has_a_named_process_for_each_rank_and_microseconds) {
  const Schedule schedule = gpipe(2, 1);
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
  const Schedule schedule = two_sends();
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

}  // namespace traced
}  // namespace
}  // namespace sprat::mp
