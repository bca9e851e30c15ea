#include "comm/timeline/lanes.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace sprat::comm::timeline {
namespace {

/// Ends of the events that are under way in a thread, the innermost last.
using OpenEnds = std::vector<std::int64_t>;

bool may_nest(TraceRow row) { return row == TraceRow::computes || row == TraceRow::steps; }

/// Whether the thread takes the event, which begins no earlier than all it has.
bool takes(OpenEnds& open, const RecordedEvent& event) {
  while (!open.empty() && open.back() <= event.start_ns) {
    open.pop_back();
  }
  if (!open.empty() && !(may_nest(event.row) && event.end_ns <= open.back())) {
    return false;
  }
  open.push_back(event.end_ns);
  return true;
}

}  // namespace

// First come, first served: intervals that are dealt in the order of their starts need no more
// threads than there are of them at a time.
Lanes deal_lanes(std::span<const RecordedEvent> events) {
  Lanes lanes{.rows = {}, .thread_of = std::vector<int>(events.size()), .order = {}};
  lanes.order.resize(events.size());
  std::iota(lanes.order.begin(), lanes.order.end(), std::size_t{0});
  std::ranges::stable_sort(lanes.order, [&](std::size_t a, std::size_t b) {
    const RecordedEvent &one = events[a], &other = events[b];
    return one.start_ns != other.start_ns ? one.start_ns < other.start_ns
                                          : one.end_ns > other.end_ns;
  });
  // By row, so that threads of one name stand side by side.
  std::map<TraceRow, std::vector<OpenEnds>> open;
  open[TraceRow::computes].resize(1);
  for (const std::size_t index : lanes.order) {
    std::vector<OpenEnds>& of_row = open[events[index].row];
    std::size_t lane = 0;
    while (lane < of_row.size() && !takes(of_row[lane], events[index])) {
      ++lane;
    }
    if (lane == of_row.size()) {
      takes(of_row.emplace_back(), events[index]);
    }
    lanes.thread_of[index] = static_cast<int>(lane);
  }
  std::map<TraceRow, int> first;
  for (const auto& [row, of_row] : open) {
    first[row] = static_cast<int>(lanes.rows.size());
    lanes.rows.insert(lanes.rows.end(), of_row.size(), row);
  }
  for (std::size_t index = 0; index < events.size(); ++index) {
    lanes.thread_of[index] += first[events[index].row];
  }
  std::ranges::stable_sort(lanes.order, {}, [&](std::size_t at) { return lanes.thread_of[at]; });
  return lanes;
}

}  // namespace sprat::comm::timeline
