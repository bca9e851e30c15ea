// A timeline as a trace that chrome://tracing and ui.perfetto.dev open, in the form of measured
// ones.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/timeline/chrome_trace.hpp"
#include "mp/actions.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

using comm::timeline::RankTimeline;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

/// The same for a send and the receive that it fills, for no others, and not 0.
std::uint64_t flow_of(const Action& message, int microbatches) {
  const Action send = is_send(message.op) ? message : other_end_of(message);
  const int place = send.stage * microbatches + send.microbatch;
  return 2 * static_cast<std::uint64_t>(place) + (send.op == Op::send_forward ? 1 : 2);
}

comm::timeline::RecordedEvent event_of(const Action& action, const TimeSpan& span,
                                       int microbatches) {
  const std::string name = to_text(action);
  auto event = comm::timeline::recorded({.row = row_of(action.op),
                                         .name = name,
                                         .start = {},
                                         .end = {},
                                         .stage = action.stage,
                                         .microbatch = action.microbatch,
                                         .receives = is_receive(action.op)});
  event.start_ns = nanoseconds(span.start);
  event.end_ns = nanoseconds(span.end);
  if (is_send(action.op) || is_receive(action.op)) {
    event.flow = flow_of(action, microbatches);
  }
  return event;
}

}  // namespace

std::string to_trace(const Schedule& schedule, const Timeline& made) {
  std::vector<RankTimeline> ranks;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    RankTimeline& one = ranks.emplace_back();
    one.rank = rank;
    one.size = schedule.ranks();
    one.clock.begin.error = nanoseconds(made.clock_error);
    for (std::size_t i = 0; i < schedule.actions[at].size(); ++i) {
      one.events.push_back(
          event_of(schedule.actions[at][i], made.spans[at][i], schedule.microbatches));
    }
  }
  return comm::timeline::chrome_trace(ranks);
}

}  // namespace sprat::mp
