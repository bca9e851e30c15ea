// Where the time of a run went, read from a Chrome trace: measured, or made by a simulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planning/trace_file.hpp"

namespace sprat::planning {

/// How one rank spent the time from the trace's first slice to its last; shares of it add up to 1.
struct RankTimes {
  std::int64_t rank = 0;
  double computing = 0;  ///< Without what it stands still amid that.
  /// It does not compute while a message, collective or receive of its own is under way,
  double communicating = 0;
  double loading = 0;  ///< or a tape on its way from a tier, or a batch, or a checkpoint,
  double idle = 0;     ///< or nothing of its own.
};
struct TraceSummary {
  double seconds = 0;
  std::vector<RankTimes> ranks;  ///< Ascending.
  std::string longest;           ///< Of the names of what is computed, the one that took most,
  double longest_share = 0;      ///< and its share of all computing.
  double computing = 0, communicating = 0, loading = 0, idle = 0;  ///< Means over ranks.
  double batches = 0, checkpoints = 0;                             ///< Parts of `loading`.
};
TraceSummary summarise(const std::vector<TraceSlice>& slices);
/// Five sentences, a line each: how long, who computed how much, what waited, what took most, and
/// what to change.
std::string summary_text(const TraceSummary& summary);

}  // namespace sprat::planning
