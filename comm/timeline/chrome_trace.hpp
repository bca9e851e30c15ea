// The form that chrome://tracing and ui.perfetto.dev open ("Trace Event Format", Google 2016): a
// process for each rank, threads for its rows, times in microseconds.
//
// A trace of many ranks is longer than memory may be, so it is written rank by rank: first each
// rank gives an outline, of some bytes and one number for each of its messages, then its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "comm/timeline/flows.hpp"
#include "comm/timeline/rank_timeline.hpp"

namespace sprat::comm::timeline {

/// What of a rank must be known before the first one is written.
struct RankOutline {
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();  ///< On rank 0's clock.
  std::int64_t clock_error_ns = 0;
  std::uint64_t dropped = 0;
  std::vector<std::uint64_t> sent = {}, received = {};  ///< Numbers of flows.
};
RankOutline outline_of(const RankTimeline& rank);

/// Of all ranks.
struct TraceOutline {
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t clock_error_ns = 0;  ///< The largest.
  std::uint64_t dropped = 0;
  Flows flows = {};
};
TraceOutline outline_of(std::vector<RankOutline> ranks);

/// All on rank 0's clock, from the first event on. Beside the events: by how much clocks may be
/// apart, and how many events were dropped.
class ChromeTrace {
 public:
  /// Gets the text in pieces of some 64 KiB; what it throws goes to the caller.
  using Out = std::function<void(std::string_view piece)>;
  ChromeTrace(TraceOutline outline, Out out);

  /// Each rank once.
  void add(const RankTimeline& rank);
  void end();

 private:
  void begin_event();
  void flush_if(std::size_t bytes);
  void name(const char* what, int process, int thread, std::string_view called);
  void add(const RankTimeline& rank, const RecordedEvent& event, int thread);

  const TraceOutline outline_;
  const Out out_;
  std::string text_;
  bool first_ = true;
};

/// The whole of it at once.
std::string chrome_trace(const std::vector<RankTimeline>& ranks);

}  // namespace sprat::comm::timeline
