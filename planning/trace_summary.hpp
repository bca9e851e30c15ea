// Where the time of a run went, read from a Chrome trace: measured, or made by a simulator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::planning {

/// Something that lasted; seconds.
struct TraceSlice {
  std::int64_t rank = 0, thread = 0;  ///< pid, tid.
  std::string name, kind;             ///< cat: "computes", "messages", "collectives", "tier" ...
  double begin = 0, end = 0;
};
/// Slices of "X" and of pairs of "B" and "E", in the order of the file. Throws
/// Error{invalid_argument} that begins with `origin`: no trace, an event without its numbers,
/// slices of one thread that overlap without one being in the other, a flow that starts or ends
/// alone.
std::vector<TraceSlice> parse_trace(std::string_view json, const std::string& origin);

/// How one rank spent the time from the trace's first slice to its last; shares of it add up to 1.
struct RankTimes {
  std::int64_t rank = 0;
  double computing = 0;
  /// It does not compute while a message, collective or receive of its own is under way,
  double communicating = 0;
  double loading = 0;  ///< or a tape on its way from a tier, or a batch,
  double idle = 0;     ///< or nothing of its own.
};
struct TraceSummary {
  double seconds = 0;
  std::vector<RankTimes> ranks;  ///< Ascending.
  std::string longest;           ///< Of the names of what is computed, the one that took most,
  double longest_share = 0;      ///< and its share of all computing.
  double computing = 0, communicating = 0, loading = 0, idle = 0;  ///< Means over ranks.
};
TraceSummary summarise(const std::vector<TraceSlice>& slices);
/// Five sentences, a line each: how long, who computed how much, what waited, what took most, and
/// what to change.
std::string summary_text(const TraceSummary& summary);

}  // namespace sprat::planning
