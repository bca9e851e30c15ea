#include "comm/timeline/flows.hpp"

namespace sprat::comm::timeline {
namespace {

struct Ends {
  int sends = 0, receives = 0;
};

}  // namespace

Flows pair_flows(const std::vector<RankTimeline>& ranks) {
  std::map<std::uint64_t, Ends> ends;
  for (const RankTimeline& rank : ranks) {
    for (const RecordedEvent& event : rank.events) {
      if (event.flow != 0) {
        ++(event.receives ? ends[event.flow].receives : ends[event.flow].sends);
      }
    }
  }
  // Numbers of their own: those of events are hashes, and viewers read numbers as doubles.
  Flows flows;
  for (const auto& [number, of] : ends) {
    if (of.sends == 1 && of.receives == 1) {
      flows.paired.emplace(number, flows.paired.size() + 1);
    } else {
      ++flows.alone;
    }
  }
  return flows;
}

}  // namespace sprat::comm::timeline
