// Sentences follow from intervals that are known, and what is no trace is refused.
#include "planning/trace_summary.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "mp/simulate.hpp"
#include "planning/foreign_text.hpp"
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
  const TraceSummary summary = summarise(parse_trace(two_ranks, "t.json").slices);
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
  const TraceSummary summary =
      summarise(parse_trace(mp::to_trace(schedule, made), "simulated").slices);
  EXPECT_NEAR(summary.seconds, made.makespan, 1e-9 * made.makespan);
  EXPECT_NEAR(1 - summary.computing, made.bubble, 1e-9);
  const std::string text = summary_text(summary);
  EXPECT_NE(text.find("4 ranks took 33 s"), std::string::npos) << text;
  EXPECT_NE(text.find("more micro-batches"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 5) << text;
}

// A forward of 10 stands still for 3, of which 1 is for a tape; it waits 4 for a message, 3 of them
// before that was sent; a batch takes 2. The step around all of it is none of these.
TEST(TraceSummary, waits_amid_what_is_computed_are_no_computing) {
  const TraceSummary summary = summarise(parse_trace(R"({"traceEvents": [
    {"ph": "X", "pid": 0, "tid": 0, "cat": "computes", "name": "0F0", "ts": 0, "dur": 10},
    {"ph": "X", "pid": 0, "tid": 1, "cat": "waits", "name": "wait", "ts": 2, "dur": 2},
    {"ph": "X", "pid": 0, "tid": 2, "cat": "stalls", "name": "wait for load", "ts": 5, "dur": 1},
    {"ph": "X", "pid": 0, "tid": 0, "cat": "computes", "name": "0RECV_B0", "ts": 10, "dur": 4},
    {"ph": "X", "pid": 0, "tid": 1, "cat": "waits", "name": "wait", "ts": 10, "dur": 4},
    {"ph": "X", "pid": 0, "tid": 3, "cat": "loader", "name": "batch", "ts": 14, "dur": 2},
    {"ph": "X", "pid": 0, "tid": 4, "cat": "steps", "name": "step 1", "ts": 0, "dur": 20},
    {"ph": "X", "pid": 1, "tid": 0, "cat": "messages", "name": "1SEND_B0", "ts": 13, "dur": 1},
    {"ph": "s", "pid": 1, "tid": 0, "id": 1, "name": "message", "ts": 13},
    {"ph": "f", "pid": 0, "tid": 0, "id": 1, "name": "message", "bp": "e", "ts": 13.9}]})",
                                                     "t.json")
                                             .slices);
  ASSERT_EQ(summary.ranks.size(), 2u);
  EXPECT_NEAR(summary.ranks[0].computing, 7.0 / 20, 1e-9);
  EXPECT_NEAR(summary.ranks[0].communicating, 3.0 / 20, 1e-9);
  EXPECT_NEAR(summary.ranks[0].loading, 3.0 / 20, 1e-9);
  EXPECT_NEAR(summary.ranks[0].idle, 7.0 / 20, 1e-9);
  EXPECT_NEAR(summary.batches, 2.0 / 20 / 2, 1e-9);
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
  // Lists in each other as deep as no stack is.
  constexpr std::size_t deep = 1'000'000;
  EXPECT_NE(complaint((R"([{"ph": "s", "ts": 1, "id": )" + std::string(deep, '[') +
                       std::string(deep, ']') + "}]")
                          .c_str())
                .find("event 1 has an \"id\" that is neither"),
            std::string::npos);
  EXPECT_NE(complaint(R"([{"name": "a"}])").find("event 1 has no phase"), std::string::npos);
  EXPECT_EQ(complaint(""), "t.json: it is empty, and no JSON");
  EXPECT_EQ(complaint(R"([{"ph": "X", "ts": 1, "du)"),
            "t.json: it ends amid JSON at byte 25: is it whole?");
  EXPECT_EQ(complaint("[}"), "t.json: it is no JSON from byte 2 of 2 on");
  EXPECT_NE(complaint(R"([{"ph": "X", "ts": 1, "dur": -1}])").find("ends before it begins"),
            std::string::npos);
  EXPECT_NE(complaint(R"([{"ph": "B", "ts": 5}, {"ph": "E", "ts": 4}])")
                .find("event 2 is before the one before it"),
            std::string::npos);
}

TEST(TraceSummary, names_of_others_do_not_speak_to_the_terminal) {
  const TraceFile trace = parse_trace(
      R"([{"ph": "X", "name": "\u001b[2Jgone\n", "cat": "\u0007", "ts": 0, "dur": 2}])", "t.json");
  for (const std::string& text : {summary_text(summarise(trace.slices)), check_text(trace)}) {
    EXPECT_EQ(text.find_first_of("\x1b\a"), std::string::npos) << text;
  }
  EXPECT_EQ(trace.slices[0].name, "?[2Jgone?");
}

TEST(TraceSummary, long_names_count_as_they_are_and_are_cut_where_they_are_shown) {
  const std::string alike(90, 'k');
  const auto slice = [&](const std::string& end, int from, int lasts) {
    return R"({"ph": "X", "name": ")" + alike + end + R"(", "ts": )" + std::to_string(from) +
           R"(, "dur": )" + std::to_string(lasts) + "}";
  };
  const TraceSummary summary = summarise(
      parse_trace("[" + slice("a", 0, 5) + "," + slice("b", 5, 3) + "," + slice("RECV", 8, 2) + "]",
                  "t.json")
          .slices);
  EXPECT_EQ(summary.longest, alike + "a");
  EXPECT_NEAR(summary.longest_share, 5.0 / 8, 1e-9);
  EXPECT_NEAR(summary.communicating, 0.2, 1e-9);
  const std::string text = summary_text(summary);
  EXPECT_NE(text.find(std::string(80, 'k') + "..."), std::string::npos) << text;
  EXPECT_EQ(text.find(std::string(81, 'k')), std::string::npos) << text;
}

TEST(TraceSummary, names_are_cut_between_letters_whatever_these_take) {
  std::string letters, whole;
  for (int i = 0; i < 30; ++i) {
    letters += "\xe6\xa2\xaf";  // three bytes, of which the 80th is amid one
    whole += i < 26 ? "\xe6\xa2\xaf" : "";
  }
  EXPECT_EQ(printable(letters), whole + "...");
  EXPECT_EQ(printable(std::string(90, '\xaf')), std::string(77, '\xaf') + "...");
  EXPECT_EQ(printable(std::string(80, '\xaf')), std::string(80, '\xaf'));
}

TEST(TraceSummary, facts_of_others_may_be_of_any_size) {
  const TraceFile trace = parse_trace(
      R"({"otherData": {"dropped_events": 1e300, "flows_with_one_end": -4, "clock_error_us": "x"},
          "traceEvents": [{"ph": "X", "name": "a", "ts": -1e300, "dur": 1e300}]})",
      "t.json");
  EXPECT_EQ(trace.dropped_events, 0);
  EXPECT_EQ(trace.flows_with_one_end, 0);
  EXPECT_EQ(trace.clock_error_us, 0);
}

// An outer slice around many that have ended, in which each arrow begins.
TEST(TraceSummary, arrows_find_their_slice_by_who_encloses_whom) {
  constexpr int inner = 100'000;
  std::string json = R"([{"ph": "X", "name": "outer", "ts": 0, "dur": 1000000})";
  for (int i = 0; i < inner; ++i) {
    json += R"(, {"ph": "X", "name": "i", "dur": 0.5, "ts": )" + std::to_string(i) + "}";
    json += R"(, {"ph": "s", "ts": 500000, "id": )" + std::to_string(i) + "}";
    json += R"(, {"ph": "f", "ts": 600000, "id": )" + std::to_string(i) + "}";
  }
  EXPECT_EQ(parse_trace(json + "]", "t.json").flows, inner);
}

TEST(TraceSummary, arrows_lead_from_one_slice_to_another_and_not_back_in_time) {
  const auto with = [](const std::string& ends, int error = 0) {
    return complaint((R"({"otherData": {"clock_error_us": )" + std::to_string(error) +
                      R"(}, "traceEvents": [{"ph": "X", "name": "send", "ts": 4, "dur": 2},
                      {"ph": "X", "tid": 1, "name": "receive", "ts": 0, "dur": 10}, )" +
                      ends + "]}")
                         .c_str());
  };
  EXPECT_EQ(with(R"({"ph": "s", "id": 1, "ts": 4}, {"ph": "f", "id": 1, "tid": 1, "ts": 9})"), "");
  EXPECT_EQ(with(R"({"ph": "s", "id": 1, "ts": 4.5}, {"ph": "f", "id": 1, "tid": 1, "ts": 4.499})"),
            "");  // it took no time
  EXPECT_NE(with(R"({"ph": "s", "id": 1, "ts": 7}, {"ph": "f", "id": 1, "tid": 1, "ts": 9})")
                .find("flow 1 starts in no slice"),
            std::string::npos);
  EXPECT_NE(with(R"({"ph": "s", "id": 1, "ts": 4}, {"ph": "f", "id": 1, "tid": 2, "ts": 9})")
                .find("flow 1 ends in no slice"),
            std::string::npos);
  const std::string back =
      R"({"ph": "s", "id": 1, "ts": 4}, {"ph": "f", "id": 1, "tid": 1, "ts": 1})";
  EXPECT_NE(with(back, 1).find("flow 1 ends before it starts"), std::string::npos);
  EXPECT_EQ(with(back, 2), "");  // no further than the clocks are apart
}

}  // namespace
}  // namespace sprat::planning
