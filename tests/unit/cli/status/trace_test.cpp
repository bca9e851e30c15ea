// What ranks called last, and what a simulator says, in the form of measured timelines.
#include "cli/status/trace.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cli/simulate/timeline.hpp"
#include "planning/trace_file.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using collectives::CallState;
using collectives::FlightRecord;
using collectives::Verb;

FlightRecord record_of(int rank, const std::string& host, double clock) {
  FlightRecord record;
  record.rank = rank;
  record.size = 2;
  record.host = host;
  record.job = "17-ab";
  record.taken = clock + 5;
  record.unix_offset = 1'700'000'000 - clock;
  record.communicators.push_back(
      {.name = "world",
       .operations = {
           {.sequence = 3,
            .call = "all_reduce of 8 f32, sum",
            .bytes = 32,
            .algorithm = "direct",
            .state = CallState::done,
            .posted = clock,
            .started = clock + 1,
            .ended = clock + 2},
           {.sequence = 4, .call = "barrier", .posted = clock + 3, .started = clock + 3}}});
  return record;
}

TEST(StatusTrace, shows_calls_of_hosts_by_the_time_of_day_and_what_is_under_way) {
  const auto trace = planning::parse_trace(
      to_trace(std::vector{record_of(0, "a", 1000), record_of(1, "b", 77)}), "status");
  ASSERT_EQ(trace.slices.size(), 4u);
  for (const planning::TraceSlice& slice : trace.slices) {
    const bool ended = slice.name == "all_reduce of 8 f32, sum";
    EXPECT_TRUE(ended || slice.name == "under way: barrier") << slice.name;
    EXPECT_NEAR(slice.begin, ended ? 0 : 2, 1e-6) << slice.rank;
    EXPECT_NEAR(slice.end, ended ? 1 : 4, 1e-6) << slice.rank;
  }
}

TEST(StatusTrace, refuses_ranks_of_several_jobs) {
  std::vector<FlightRecord> records = {record_of(0, "a", 1), record_of(1, "a", 1)};
  records[1].job = "18-cd";
  EXPECT_THROW(to_trace(records), Error);
  EXPECT_THROW(to_trace(std::vector<FlightRecord>()), Error);
}

TEST(SimulatedTrace, arrows_lead_from_the_kth_send_to_the_kth_receive) {
  Timeline timeline;
  timeline.host_of = {0, 1};
  timeline.spans = {{.rank = 1, .verb = Verb::recv, .peer = 0, .begin = 0, .end = 3e-6},
                    {.rank = 0, .verb = Verb::send, .peer = 1, .begin = 1e-6, .end = 2e-6},
                    {.rank = 1, .verb = Verb::recv, .peer = 0, .begin = 3e-6, .end = 6e-6},
                    {.rank = 0, .verb = Verb::send, .peer = 1, .begin = 4e-6, .end = 5e-6},
                    {.rank = 1, .verb = Verb::reduce, .begin = 6e-6, .end = 7e-6}};
  const auto trace = planning::parse_trace(to_trace(timeline), "simulated");
  EXPECT_EQ(trace.flows, 2);
  std::map<double, double> sent;  // by the receive's begin
  for (const planning::TraceSlice& slice : trace.slices) {
    if (slice.sent >= 0) {
      sent[std::round(slice.begin * 1e6)] = std::round(slice.sent * 1e6);
    }
  }
  EXPECT_EQ(sent, (std::map<double, double>{{0, 1}, {3, 4}}));
}

}  // namespace
}  // namespace sprat::cli
