#include "comm/timeline/event.hpp"

#include <algorithm>

namespace sprat {

Tracer::~Tracer() = default;

const char* name(TraceRow row) noexcept {
  switch (row) {
    case TraceRow::computes:
      return "computes";
    case TraceRow::waits:
      return "waits";
    case TraceRow::stalls:
      return "stalls";
    case TraceRow::messages:
      return "messages";
    case TraceRow::gathers:
      return "gathers";
    case TraceRow::reduces:
      return "reduces";
    case TraceRow::collectives:
      return "collectives";
    case TraceRow::tier:
      return "tier";
    case TraceRow::loader:
      return "loader";
    case TraceRow::checkpoint:
      return "checkpoint";
    case TraceRow::steps:
      return "steps";
  }
  return "unknown";  // of a file's bytes
}

}  // namespace sprat

namespace sprat::comm::timeline {
namespace {

std::int64_t ns(std::chrono::steady_clock::time_point time) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// The last byte stays 0.
template <std::size_t size>
void put(char (&name)[size], std::string_view text) noexcept {
  std::copy_n(text.data(), std::min(text.size(), size - 1), name);
}

}  // namespace

RecordedEvent recorded(const TraceEvent& event) noexcept {
  RecordedEvent kept{.start_ns = ns(event.start),
                     .end_ns = ns(event.end),
                     .bytes = event.bytes,
                     .flow = event.flow,
                     .sequence = event.sequence,
                     .stage = event.stage,
                     .microbatch = event.microbatch,
                     .row = event.row,
                     .receives = event.receives};
  put(kept.name, event.name);
  put(kept.algorithm, event.algorithm);
  put(kept.place, event.place);
  return kept;
}

}  // namespace sprat::comm::timeline
