// Arrows between events of two ranks, and which of them have both ends.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/timeline/rank_timeline.hpp"

namespace sprat::comm::timeline {

struct Flows {
  /// By the events' number: that of the arrow, from 1 on.
  std::map<std::uint64_t, std::uint64_t> paired;
  std::uint64_t alone = 0;  ///< Numbers with one end: the other one was dropped, or never came.
};

/// One event that sends and one that receives make a pair.
Flows pair_flows(const std::vector<RankTimeline>& ranks);

}  // namespace sprat::comm::timeline
