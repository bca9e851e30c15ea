// Sentences follow from intervals that are known, and what is no trace is refused.
#include "planning/trace_summary.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "mp/simulate.hpp"
#include "sprat/error.hpp"

namespace sprat::planning {
namespace {

std::string complaint(const char* json) {
  try {
    parse_trace(json, "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Rank 0: computes 0-4, sends 3-6 (2 of it hidden by nothing), loads 6-7, idles to 10. Rank 1: all.
constexpr const char* two_ranks = R"({"traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
  {"ph": "X", "pid": 0, "tid": 0, "cat": "computes", "name": "0F0", "ts": 0, "dur": 4},
  {"ph": "X", "pid": 0, "tid": 1, "cat": "messages", "name": "0SEND_F0", "ts": 3, "dur": 3},
  {"ph": "X", "pid": 0, "tid": 2, "cat": "tier", "name": "0LOAD0", "ts": 6, "dur": 1},
  {"ph": "B", "pid": 1, "tid": 0, "cat": "computes", "name": "1B0", "ts": 0},
  {"ph": "E", "pid": 1, "tid": 0, "ts": 10}]})";

TEST(TraceSummary, shares_are_those_of_the_intervals) {
  const TraceSummary summary = summarise(parse_trace(two_ranks, "t.json"));
  ASSERT_EQ(summary.ranks.size(), 2u);
  EXPECT_NEAR(summary.seconds, 10e-6, 1e-12);
  EXPECT_NEAR(summary.ranks[0].computing, 0.4, 1e-9);
  EXPECT_NEAR(summary.ranks[0].communicating, 0.2, 1e-9);
  EXPECT_NEAR(summary.ranks[0].loading, 0.1, 1e-9);
  EXPECT_NEAR(summary.ranks[0].idle, 0.3, 1e-9);
  EXPECT_NEAR(summary.computing, 0.7, 1e-9);
  EXPECT_EQ(summary.longest, "B");
  EXPECT_NEAR(summary.longest_share, 10.0 / 14, 1e-9);
}

// What the simulator says of a schedule, its trace says too.
TEST(TraceSummary, agrees_with_the_simulator_whose_trace_it_reads) {
  const mp::Schedule schedule = mp::make_schedule(
      {.kind = "1f1b", .shape = {.ranks = 4, .microbatches = 8, .stages_per_rank = 1}});
  const mp::Timeline made = mp::simulate(schedule, mp::uniform_costs(schedule, {}));
  const TraceSummary summary = summarise(parse_trace(mp::to_trace(schedule, made), "simulated"));
  EXPECT_NEAR(summary.seconds, made.makespan, 1e-9 * made.makespan);
  EXPECT_NEAR(1 - summary.computing, made.bubble, 1e-9);
  const std::string text = summary_text(summary);
  EXPECT_NE(text.find("4 ranks took 33 s"), std::string::npos) << text;
  EXPECT_NE(text.find("more micro-batches"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 5) << text;
}

TEST(TraceSummary, the_largest_wait_decides_what_to_change) {
  const auto remedy = [](double communicating, double loading, double idle, double other) {
    const double rest = 1 - communicating - loading - idle;
    return summary_text({.seconds = 1,
                         .ranks = {{.rank = 0, .computing = rest}, {.rank = 1, .computing = other}},
                         .longest = "F",
                         .longest_share = 1,
                         .computing = rest,
                         .communicating = communicating,
                         .loading = loading,
                         .idle = idle});
  };
  EXPECT_NE(remedy(0.3, 0, 0.1, 0.6).find("gradient_wire"), std::string::npos);
  EXPECT_NE(remedy(0, 0.3, 0.1, 0.6).find("activation_loading_horizon"), std::string::npos);
  EXPECT_NE(remedy(0, 0, 0.3, 0.7).find("more micro-batches"), std::string::npos);
  EXPECT_NE(remedy(0, 0, 0.3, 0.2).find("rank 0 computes 70 %"), std::string::npos);
  EXPECT_NE(remedy(0.05, 0, 0, 0.9).find("faster computing"), std::string::npos);
}

TEST(TraceSummary, what_is_no_trace_is_refused_by_its_event) {
  EXPECT_NE(complaint("7").find("t.json: this is no Chrome trace"), std::string::npos);
  EXPECT_NE(complaint("[]").find("without slices"), std::string::npos);
  EXPECT_NE(complaint(R"([{"ph": "X", "ts": 1}])").find("event 1 has no number \"dur\""),
            std::string::npos);
  EXPECT_NE(complaint(R"([{"ph": "E", "ts": 1}])").find("did not begin"), std::string::npos);
  EXPECT_NE(complaint(R"([{"ph": "B", "ts": 1}])").find("never ends"), std::string::npos);
  EXPECT_NE(complaint(R"([{"ph": "X", "name": "a", "ts": 0, "dur": 2},
                          {"ph": "X", "name": "b", "ts": 1, "dur": 2}])")
                .find("\"b\" of process 0, thread 0 overlaps \"a\""),
            std::string::npos);
  EXPECT_NE(complaint(R"([{"ph": "X", "ts": 0, "dur": 2}, {"ph": "s", "id": 3, "ts": 1}])")
                .find("flow 3 starts or ends alone"),
            std::string::npos);
}

}  // namespace
}  // namespace sprat::planning
