#include "comm/timeline/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "comm/timeline/flows.hpp"
#include "comm/timeline/lanes.hpp"

namespace sprat::comm::timeline {
namespace {

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

class Writer {
 public:
  explicit Writer(const std::vector<RankTimeline>& ranks)
      : ranks_(ranks), flows_(pair_flows(ranks)), origin_(first_start()) {}

  std::string write() {
    put("{{\n \"displayTimeUnit\": \"ms\",\n \"otherData\": {{\"program\": \"sprat\", "
        "\"clock_error_us\": {}, \"dropped_events\": {}, \"flows_with_one_end\": {}}},\n "
        "\"traceEvents\": [",
        microseconds(clock_error_ns(ranks_)), dropped_events(ranks_), flows_.alone);
    for (const RankTimeline& rank : ranks_) {
      add(rank);
    }
    out_ += "\n ]\n}\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void begin_event() {
    out_ += first_ ? "\n  " : ",\n  ";
    first_ = false;
  }

  std::int64_t first_start() const {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const RankTimeline& rank : ranks_) {
      for (const RecordedEvent& event : rank.events) {
        first = std::min(first, rank.clock.aligned(event.start_ns));
      }
    }
    return first;
  }

  void add(const RankTimeline& rank) {
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

  void name(const char* what, int process, int thread, std::string_view called) {
    begin_event();
    put(R"({{"name": "{}", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": {}}}}})", what,
        process, thread, quoted(called));
  }

  /// "X": a whole event, where "B" and "E" would be two.
  void add(const RankTimeline& rank, const RecordedEvent& event, int thread) {
    const std::int64_t start = rank.clock.aligned(event.start_ns) - origin_;
    const std::int64_t end = std::max(start, rank.clock.aligned(event.end_ns) - origin_);
    begin_event();
    put(R"({{"name": {}, "cat": "{}", "ph": "X", "ts": {}, "dur": {}, "pid": {}, "tid": {}, "args": {{{}}}}})",
        quoted(text_of(event.name)), sprat::name(event.row), microseconds(start),
        microseconds(end - start), rank.rank, thread, arguments(event));
    const auto flow = flows_.paired.find(event.flow);
    if (flow != flows_.paired.end()) {
      // An end belongs to the event that it lies in, which holds its start and not its end.
      const std::int64_t at = event.receives && end > start ? end - 1 : start;
      begin_event();
      put(R"({{"name": "message", "cat": "messages", "ph": "{}", "id": {}, "ts": {}, "pid": {}, "tid": {}{}}})",
          event.receives ? "f" : "s", flow->second, microseconds(at), rank.rank, thread,
          event.receives ? R"(, "bp": "e")" : "");
    }
  }

  /// Shown where an event is clicked.
  static std::string arguments(const RecordedEvent& event) {
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

  const std::vector<RankTimeline>& ranks_;
  const Flows flows_;
  const std::int64_t origin_;
  std::string out_;
  bool first_ = true;
};

}  // namespace

std::string chrome_trace(const std::vector<RankTimeline>& ranks) { return Writer(ranks).write(); }

std::int64_t clock_error_ns(const std::vector<RankTimeline>& ranks) {
  std::int64_t error = 0;
  for (const RankTimeline& rank : ranks) {
    error = std::max(error, rank.clock.error());
  }
  return error;
}

std::uint64_t dropped_events(const std::vector<RankTimeline>& ranks) {
  std::uint64_t dropped = 0;
  for (const RankTimeline& rank : ranks) {
    dropped += rank.dropped;
  }
  return dropped;
}

}  // namespace sprat::comm::timeline
