#include "mp/timeline.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "mp/actions.hpp"
#include "mp/validate.hpp"

namespace sprat::mp {
namespace {

/// Operation, stage and micro-batch of a send.
using SendKey = std::tuple<Op, int, int>;

/// When each message was sent.
std::map<SendKey, double> send_times(const Schedule& schedule,
                                     const std::vector<MeasuredRank>& measured) {
  std::map<SendKey, double> times;
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      if (is_send(action.op)) {
        times[{action.op, action.stage, action.microbatch}] = measured[rank].spans[i].start;
      }
    }
  }
  return times;
}

double earliest_start(const std::vector<MeasuredRank>& measured) {
  double first = std::numeric_limits<double>::infinity();
  for (const MeasuredRank& rank : measured) {
    for (const TimeSpan& span : rank.spans) {
      first = std::min(first, span.start);
    }
  }
  return first;
}

RankUse use_of(const std::vector<Action>& actions, const MeasuredRank& measured,
               const std::map<SendKey, double>& sent) {
  RankUse use;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const TimeSpan& span = measured.spans[i];
    use.exposed_communication += measured.held[i];
    if (is_computation(actions[i].op)) {
      use.busy += span.end - span.start;
    } else if (is_receive(actions[i].op)) {
      // Before the message was sent, the wait was for another rank's computation: a bubble.
      const Action send = other_end_of(actions[i]);
      const double since = sent.at({send.op, send.stage, send.microbatch});
      use.exposed_communication += std::max(0.0, span.end - std::max(span.start, since));
    }
  }
  return use;
}

}  // namespace

Timeline timeline_of(const Schedule& schedule, std::vector<MeasuredRank> measured) {
  Timeline made;
  const std::map<SendKey, double> sent = send_times(schedule, measured);
  const double first = earliest_start(measured);
  const std::vector<int> peaks = peak_microbatches(schedule);
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    made.ranks.push_back(use_of(schedule.actions[rank], measured[rank], sent));
    made.ranks.back().peak_microbatches = peaks[rank];
    for (TimeSpan& span : measured[rank].spans) {
      span = {.start = span.start - first, .end = span.end - first};
    }
    made.spans.push_back(std::move(measured[rank].spans));
  }
  add_bubbles(made);
  return made;
}

void add_bubbles(Timeline& timeline) {
  for (const auto& spans : timeline.spans) {
    for (const TimeSpan& span : spans) {
      timeline.makespan = std::max(timeline.makespan, span.end);
    }
  }
  double busy = 0;
  for (RankUse& use : timeline.ranks) {
    use.bubble = timeline.makespan > 0 ? 1 - use.busy / timeline.makespan : 0;
    busy += use.busy;
  }
  const double whole = timeline.makespan * double(timeline.ranks.size());
  timeline.bubble = whole > 0 ? 1 - busy / whole : 0;
}

}  // namespace sprat::mp
