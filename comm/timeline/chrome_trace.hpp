// The form that chrome://tracing and ui.perfetto.dev open ("Trace Event Format", Google 2016): a
// process for each rank, threads for its rows, times in microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/timeline/rank_timeline.hpp"

namespace sprat::comm::timeline {

/// All on rank 0's clock, from the first event on. Beside the events: by how much clocks may be
/// apart, and by rank how many events were dropped.
std::string chrome_trace(const std::vector<RankTimeline>& ranks);

/// The largest bound of all ranks.
std::int64_t clock_error_ns(const std::vector<RankTimeline>& ranks);
std::uint64_t dropped_events(const std::vector<RankTimeline>& ranks);

}  // namespace sprat::comm::timeline
