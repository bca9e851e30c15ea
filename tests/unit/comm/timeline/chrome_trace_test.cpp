// Events of ranks as the form that Perfetto opens: threads, arrows, clocks, and what is missing.
#include "comm/timeline/chrome_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/timeline/flows.hpp"
#include "comm/timeline/lanes.hpp"
#include "sprat/error.hpp"

namespace sprat::comm::timeline {
namespace {

using Json = nlohmann::json;

RecordedEvent event(TraceRow row, std::int64_t start, std::int64_t end, const char* name = "e") {
  RecordedEvent made = recorded({.row = row, .name = name, .start = {}, .end = {}});
  made.start_ns = start;
  made.end_ns = end;
  return made;
}

RecordedEvent message(std::uint64_t flow, bool receives, std::int64_t start, std::int64_t end) {
  RecordedEvent made = event(receives ? TraceRow::computes : TraceRow::messages, start, end, "m");
  made.flow = flow;
  made.receives = receives;
  return made;
}

TEST(TraceLanes, what_is_under_way_together_lies_side_by_side) {
  const RecordedEvent events[] = {event(TraceRow::gathers, 0, 10), event(TraceRow::gathers, 5, 15),
                                  event(TraceRow::gathers, 10, 20), event(TraceRow::gathers, 6, 7)};
  const Lanes lanes = deal_lanes(events);
  EXPECT_EQ(lanes.rows, (std::vector<TraceRow>{TraceRow::computes, TraceRow::gathers,
                                               TraceRow::gathers, TraceRow::gathers}));
  EXPECT_EQ(lanes.thread_of, (std::vector<int>{1, 2, 1, 3}));
  EXPECT_EQ(lanes.order, (std::vector<std::size_t>{0, 2, 1, 3}));
}

TEST(TraceLanes, what_is_computed_may_lie_in_another_and_not_across_its_end) {
  const RecordedEvent events[] = {event(TraceRow::computes, 2, 4), event(TraceRow::computes, 0, 10),
                                  event(TraceRow::computes, 9, 12),
                                  event(TraceRow::computes, 0, 10)};
  EXPECT_EQ(deal_lanes(events).thread_of, (std::vector<int>{0, 0, 1, 0}));
}

TEST(TraceFlows, have_one_end_of_each_kind_or_are_left_out) {
  const std::vector<RankTimeline> ranks = {
      {.rank = 0,
       .size = 2,
       .host = {},
       .events = {message(77, false, 0, 1), message(5, false, 1, 2), message(6, false, 2, 3),
                  message(9, false, 3, 4)}},
      {.rank = 1,
       .size = 2,
       .host = {},
       .events = {message(77, true, 3, 4), message(6, true, 4, 5), message(6, true, 5, 6),
                  message(8, true, 6, 7), message(9, true, 7, 8)}}};
  const Flows flows = outline_of({outline_of(ranks[0]), outline_of(ranks[1])}).flows;
  EXPECT_EQ(flows.paired, (std::vector<std::uint64_t>{9, 77}));
  EXPECT_EQ(flows.alone, 3u);
  EXPECT_EQ(flows.arrow_of(77), 2u);
  EXPECT_EQ(flows.arrow_of(6), 0u);
  EXPECT_EQ(flows.arrow_of(100), 0u);
}

TEST(ChromeTrace, is_on_the_clock_of_rank_0_from_the_first_event_on) {
  RecordedEvent call = event(TraceRow::collectives, 5'000'000, 5'001'500, "all_\"reduce");
  call.bytes = 4096;
  call.sequence = 12;
  std::vector<RankTimeline> ranks = {
      {.rank = 0, .size = 2, .host = "left", .events = {message(9, false, 5'002'000, 5'003'000)}},
      {.rank = 1,
       .size = 2,
       .host = "right",
       .clock = {.begin = {.at = 0, .offset = -1'000'000, .error = 1500},
                 .end = {.at = 10'000'000, .offset = -1'000'000, .error = 2500}},
       .dropped = 3,
       .events = {call, message(9, true, 6'002'500, 6'004'001)}}};
  const Json trace = Json::parse(chrome_trace(ranks));
  EXPECT_EQ(trace["otherData"]["clock_error_us"], 2.5);
  EXPECT_EQ(trace["otherData"]["dropped_events"], 3);
  std::map<std::string, Json> found;
  for (const Json& one : trace["traceEvents"]) {
    found[std::string(one["ph"]) + " " + std::string(one["name"]) + " " +
          std::to_string(int(one["pid"]))] = one;
  }
  // Rank 1's call began 1.002 ms before rank 0's message on rank 0's clock.
  EXPECT_EQ(found["X all_\"reduce 1"]["ts"], 0.0);
  EXPECT_EQ(found["X all_\"reduce 1"]["dur"], 1.5);
  EXPECT_EQ(found["X all_\"reduce 1"]["args"], (Json{{"bytes", 4096}, {"sequence", 12}}));
  EXPECT_EQ(found["X m 0"]["ts"], 1002.0);
  EXPECT_EQ(found["s message 0"]["ts"], 1002.0);
  EXPECT_EQ(found["f message 1"]["ts"], 1004.0);  // the last nanosecond that is in the receive
  EXPECT_EQ(found["f message 1"]["id"], found["s message 0"]["id"]);
  EXPECT_EQ(found["M process_name 1"]["args"]["name"], "rank 1 (right)");
}

// JSON is UTF-8, and what is not is read by nobody: names are cut where their array ends.
TEST(ChromeTrace, is_utf8_wherever_names_are_cut) {
  const std::string letters = "aä€𝄞";
  std::vector<RecordedEvent> events;
  std::vector<std::string> shown;
  for (std::size_t bytes = 1; bytes <= letters.size(); ++bytes) {
    events.push_back(event(TraceRow::computes, 0, 1, letters.substr(0, bytes).c_str()));
  }
  // Overlong, half of a pair, beyond Unicode, and what begins no letter.
  for (const char* bytes : {"\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80", "\x80", "\xff", "\xf0\x9d", "a\xe2\x82z"}) {
    events.push_back(event(TraceRow::computes, 0, 1, bytes));
  }
  const Json trace =
      Json::parse(chrome_trace({{.rank = 0, .size = 1, .host = "h\xc3", .events = events}}));
  for (const Json& one : trace["traceEvents"]) {
    if (one["ph"] == "X") {
      shown.push_back(one["name"]);
    }
  }
  ASSERT_EQ(shown.size(), events.size());
  EXPECT_EQ(shown[0], "a");
  EXPECT_EQ(shown[1], "a\ufffd");
  EXPECT_EQ(shown[2], "aä");
  EXPECT_EQ(shown[9], letters);
  EXPECT_EQ(shown.back(), "a\ufffd\ufffdz");
}

// Who writes it holds one rank's events and a piece of the text, however many ranks there are.
TEST(ChromeTrace, comes_in_pieces_of_little_memory_that_are_the_whole) {
  std::vector<RankTimeline> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back({.rank = rank, .size = 3, .host = "h"});
    for (int at = 0; at < 5000; ++at) {
      ranks.back().events.push_back(message(static_cast<std::uint64_t>(at + 1), rank == 1,
                                            10 * at + rank, 10 * at + 5 + rank));
    }
  }
  std::vector<RankOutline> outlines;
  for (const RankTimeline& rank : ranks) {
    outlines.push_back(outline_of(rank));
  }
  std::string whole;
  std::size_t longest = 0;
  ChromeTrace trace(outline_of(std::move(outlines)), [&](std::string_view piece) {
    longest = std::max(longest, piece.size());
    whole += piece;
  });
  for (const RankTimeline& rank : ranks) {
    trace.add(rank);
  }
  trace.end();
  EXPECT_TRUE(whole == chrome_trace(ranks));
  EXPECT_GT(whole.size(), 1'000'000u);
  EXPECT_LT(longest, 66'000u);
}

TEST(ChromeTrace, without_an_event_is_a_list_of_names) {
  const Json trace = Json::parse(chrome_trace({{.rank = 0, .size = 1, .host = {}}}));
  EXPECT_EQ(trace["traceEvents"].size(), 2u);
}

TEST(RankTimelines, come_back_from_bytes_and_others_are_refused) {
  const RankTimeline rank{
      .rank = 3,
      .size = 8,
      .host = "here",
      .job = "42-00ff",
      .clock = {.begin = {1, 2, 3}, .end = {4, 5, 6}},
      .dropped = 7,
      .events = {event(TraceRow::tier, 1, 2, "load"), event(TraceRow::loader, 3, 4, "batch")}};
  std::vector<std::byte> bytes = packed(rank);
  const RankTimeline back = unpacked(bytes, "part");
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.host, "here");
  EXPECT_EQ(back.job, "42-00ff");
  EXPECT_EQ(back.clock.end, rank.clock.end);
  EXPECT_EQ(back.dropped, 7u);
  ASSERT_EQ(back.events.size(), 2u);
  EXPECT_EQ(text_of(back.events[1].name), "batch");
  const auto complaint = [](std::span<const std::byte> of) -> std::string {
    try {
      unpacked(of, "part");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint(std::span(bytes).first(10)).find("part has 10 bytes"), std::string::npos);
  EXPECT_NE(complaint(std::span(bytes).first(bytes.size() - 1)).find("holds 2 events"),
            std::string::npos);
  bytes[0] ^= std::byte{1};
  EXPECT_NE(complaint(bytes).find("no rank's part"), std::string::npos);
  // Times whose sums have no room, and a bool that is neither.
  RankTimeline strange = rank;
  strange.events[1].end_ns = std::numeric_limits<std::int64_t>::min();
  EXPECT_NE(complaint(packed(strange)).find("no event at byte"), std::string::npos);
  strange = rank;
  strange.clock.end.offset = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(complaint(packed(strange)).find("shows no time"), std::string::npos);
  // A name that leads elsewhere when a file is named after it.
  strange = rank;
  strange.job = "../x";
  EXPECT_NE(complaint(packed(strange)).find("a job whose name is none"), std::string::npos);
  bytes = packed(rank);
  bytes[bytes.size() - sizeof(RecordedEvent) + offsetof(RecordedEvent, receives)] = std::byte{2};
  EXPECT_NE(complaint(bytes).find("no event at byte"), std::string::npos);
}

}  // namespace
}  // namespace sprat::comm::timeline
