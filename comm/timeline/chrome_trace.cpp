#include "comm/timeline/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "comm/timeline/lanes.hpp"

namespace sprat::comm::timeline {
namespace {

/// So that a write is worth its system call, and memory for it is none to speak of.
constexpr std::size_t piece_bytes = 64 * 1024;

/// Of the letter of UTF-8 that the text begins with (RFC 3629, table of section 4); 0: it begins
/// with none. The text is not empty.
std::size_t letter_bytes(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t bytes = first < 0xc2 || first > 0xf4 ? 0
                            : first < 0xe0               ? 2
                            : first < 0xf0               ? 3
                                                         : 4;
  if (bytes == 0 || text.size() < bytes) {
    return 0;
  }
  // No form that is longer than it must be, no half of a pair, nothing beyond the last letter.
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  bool is_letter = byte(1) >= least && byte(1) <= most;
  for (std::size_t at = 2; at < bytes; ++at) {
    is_letter = is_letter && (byte(at) & 0xc0) == 0x80;
  }
  return is_letter ? bytes : 0;
}

/// As a string of JSON, which is UTF-8: names are cut to their arrays, perhaps amid a letter, and
/// readers refuse a file with half of one.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t bytes = letter_bytes(text);
    const char letter = text.front();
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (bytes == 1 && letter < ' ') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out + '"';
}

/// Nanoseconds as microseconds, exactly.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

/// Shown where an event is clicked.
std::string arguments(const RecordedEvent& event) {
  std::string all;
  const auto append = [&all](const char* key, const std::string& value) {
    all += fmt::format("{}\"{}\": {}", all.empty() ? "" : ", ", key, value);
  };
  if (event.stage >= 0) {
    append("stage", std::to_string(event.stage));
  }
  if (event.microbatch >= 0) {
    append("microbatch", std::to_string(event.microbatch));
  }
  if (event.sequence >= 0) {
    append("sequence", std::to_string(event.sequence));
  }
  if (event.bytes > 0) {
    append("bytes", std::to_string(event.bytes));
  }
  if (event.algorithm[0] != '\0') {
    append("algorithm", quoted(text_of(event.algorithm)));
  }
  if (event.place[0] != '\0') {
    append("communicator", quoted(text_of(event.place)));
  }
  return all;
}

}  // namespace

RankOutline outline_of(const RankTimeline& rank) {
  RankOutline outline{.clock_error_ns = rank.clock.error(), .dropped = rank.dropped};
  for (const RecordedEvent& event : rank.events) {
    outline.first_ns = std::min(outline.first_ns, rank.clock.aligned(event.start_ns));
    if (event.flow != 0) {
      (event.receives ? outline.received : outline.sent).push_back(event.flow);
    }
  }
  return outline;
}

TraceOutline outline_of(std::vector<RankOutline> ranks) {
  TraceOutline all;
  std::vector<std::uint64_t> sent, received;
  for (RankOutline& rank : ranks) {
    all.first_ns = std::min(all.first_ns, rank.first_ns);
    all.clock_error_ns = std::max(all.clock_error_ns, rank.clock_error_ns);
    all.dropped += rank.dropped;
    sent.insert(sent.end(), rank.sent.begin(), rank.sent.end());
    received.insert(received.end(), rank.received.begin(), rank.received.end());
    rank = {};  // of many ranks these are long
  }
  all.flows = pair_flows(std::move(sent), std::move(received));
  return all;
}

ChromeTrace::ChromeTrace(TraceOutline outline, Out out)
    : outline_(std::move(outline)), out_(std::move(out)) {
  text_ += fmt::format(
      "{{\n \"displayTimeUnit\": \"ms\",\n \"otherData\": {{\"program\": \"sprat\", "
      "\"clock_error_us\": {}, \"dropped_events\": {}, \"flows_with_one_end\": {}}},\n "
      "\"traceEvents\": [",
      microseconds(outline_.clock_error_ns), outline_.dropped, outline_.flows.alone);
}

void ChromeTrace::end() {
  text_ += "\n ]\n}\n";
  flush_if(0);
}

void ChromeTrace::flush_if(std::size_t bytes) {
  if (text_.size() >= bytes) {
    out_(text_);
    text_.clear();
  }
}

void ChromeTrace::begin_event() {
  flush_if(piece_bytes);
  text_ += first_ ? "\n  " : ",\n  ";
  first_ = false;
}

void ChromeTrace::add(const RankTimeline& rank) {
  name("process_name", rank.rank, 0,
       rank.host.empty() ? fmt::format("rank {}", rank.rank)
                         : fmt::format("rank {} ({})", rank.rank, rank.host));
  const Lanes lanes = deal_lanes(rank.events);
  for (std::size_t thread = 0; thread < lanes.rows.size(); ++thread) {
    name("thread_name", rank.rank, static_cast<int>(thread), sprat::name(lanes.rows[thread]));
  }
  for (const std::size_t index : lanes.order) {
    add(rank, rank.events[index], lanes.thread_of[index]);
  }
}

void ChromeTrace::name(const char* what, int process, int thread, std::string_view called) {
  begin_event();
  text_ +=
      fmt::format(R"({{"name": "{}", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
                  what, process, thread, quoted(called));
}

/// "X": a whole event, where "B" and "E" would be two.
void ChromeTrace::add(const RankTimeline& rank, const RecordedEvent& event, int thread) {
  const std::int64_t start = rank.clock.aligned(event.start_ns) - outline_.first_ns;
  const std::int64_t end = std::max(start, rank.clock.aligned(event.end_ns) - outline_.first_ns);
  begin_event();
  text_ += fmt::format(
      R"({{"name": {}, "cat": "{}", "ph": "X", "ts": {}, "dur": {}, "pid": {}, "tid": {}, "args": {{{}}}}})",
      quoted(text_of(event.name)), sprat::name(event.row), microseconds(start),
      microseconds(end - start), rank.rank, thread, arguments(event));
  if (const std::uint64_t arrow = outline_.flows.arrow_of(event.flow); arrow != 0) {
    // An end belongs to the event that it lies in, which holds its start and not its end.
    const std::int64_t at = event.receives && end > start ? end - 1 : start;
    begin_event();
    text_ += fmt::format(
        R"({{"name": "message", "cat": "messages", "ph": "{}", "id": {}, "ts": {}, "pid": {}, "tid": {}{}}})",
        event.receives ? "f" : "s", arrow, microseconds(at), rank.rank, thread,
        event.receives ? R"(, "bp": "e")" : "");
  }
}

std::string chrome_trace(const std::vector<RankTimeline>& ranks) {
  std::vector<RankOutline> outlines;
  for (const RankTimeline& rank : ranks) {
    outlines.push_back(outline_of(rank));
  }
  std::string whole;
  ChromeTrace trace(outline_of(std::move(outlines)),
                    [&whole](std::string_view piece) { whole += piece; });
  for (const RankTimeline& rank : ranks) {
    trace.add(rank);
  }
  trace.end();
  return whole;
}

}  // namespace sprat::comm::timeline
