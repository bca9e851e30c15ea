// Where events are drawn: viewers show a thread's events in each other or side by side, so what is
// under way together needs several threads of one name.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/timeline/event.hpp"

namespace sprat::comm::timeline {

struct Lanes {
  std::vector<TraceRow> rows;      ///< By thread; thread 0 is what the rank computes, always.
  std::vector<int> thread_of;      ///< By event.
  std::vector<std::size_t> order;  ///< Of the events: by thread, then as they begin, outer first.
};

/// Events of one rank. In `computes` and `steps` one may lie in another, elsewhere none overlap in
/// a thread. As few threads as there ever are events of a row under way together.
Lanes deal_lanes(std::span<const RecordedEvent> events);

}  // namespace sprat::comm::timeline
