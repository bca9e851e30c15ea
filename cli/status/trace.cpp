#include "cli/status/trace.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "comm/timeline/chrome_trace.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using collectives::FlightRecord;
using comm::timeline::RankTimeline;
using comm::timeline::RecordedEvent;

/// From `epoch` on, which is near: a double has too few digits for nanoseconds since 1970.
class Moments {
 public:
  Moments(const FlightRecord& record, double epoch) : record_(record), epoch_(epoch) {}

  /// What has no end yet ends when the record was taken.
  void set(RecordedEvent& event, double from, double to) const {
    event.start_ns = at(from);
    event.end_ns = std::max(event.start_ns, at(to == 0 ? record_.taken : to));
  }

 private:
  std::int64_t at(double time) const {
    return std::llround((time + (record_.unix_offset - epoch_)) * 1e9);
  }
  const FlightRecord& record_;
  const double epoch_;
};

void add(RankTimeline& rank, const Moments& moments, const collectives::RecordedCommunicator& of) {
  for (const collectives::RecordedOperation& call : of.operations) {
    const std::string what = call.ended == 0 ? "under way: " + call.call : call.call;
    RecordedEvent event =
        comm::timeline::recorded({.row = TraceRow::collectives,
                                  .name = what,
                                  .bytes = call.bytes,
                                  .sequence = static_cast<std::int64_t>(call.sequence),
                                  .algorithm = call.algorithm,
                                  .place = of.name});
    moments.set(event, call.started == 0 ? call.posted : call.started, call.ended);
    rank.events.push_back(event);
  }
  for (const collectives::RecordedMessage& message : of.messages) {
    const std::string what = fmt::format(
        "{} {}", message.sends ? "send to" : "recv from",
        message.peer < 0 ? "any rank" : fmt::format("{}, tag {}", message.peer, message.tag));
    RecordedEvent event = comm::timeline::recorded(
        {.row = TraceRow::messages, .name = what, .bytes = message.bytes, .place = of.name});
    moments.set(event, message.posted, message.ended);
    rank.events.push_back(event);
  }
}

}  // namespace

std::string to_trace(const std::vector<FlightRecord>& records) {
  if (records.empty()) {
    throw Error(ErrorCode::invalid_argument, "no rank shows anything, so there is no timeline");
  }
  std::vector<RankTimeline> ranks;
  const FlightRecord& first = records.front();
  for (const FlightRecord& record : records) {
    if (record.job != first.job) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("there are ranks of several jobs, {} and {}; name the processes of one",
                      first.job, record.job));
    }
    // Ranks of a host have one clock, however the time of day was set meanwhile.
    const bool here = record.host == first.host;
    FlightRecord aligned;
    aligned.taken = record.taken;
    aligned.unix_offset = here ? first.unix_offset : record.unix_offset;
    const Moments moments(aligned, first.unix_offset);
    RankTimeline& rank = ranks.emplace_back();
    rank.rank = record.rank;
    rank.size = record.size;
    rank.host = record.host;
    for (const collectives::RecordedCommunicator& of : record.communicators) {
      add(rank, moments, of);
    }
  }
  std::ranges::sort(ranks, {}, &RankTimeline::rank);
  return comm::timeline::chrome_trace(ranks);
}

}  // namespace sprat::cli
