// Chrome traces, read and held against their format: of a run, of a simulator, or of another tool.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::planning {

/// Something that lasted; seconds.
struct TraceSlice {
  std::int64_t rank = 0, thread = 0;  ///< pid, tid.
  std::string name = {}, kind = {};   ///< cat: "computes", "messages", "collectives", "tier" ...
  double begin = 0, end = 0;
  double sent = -1;  ///< Of a slice in which an arrow ends: when that began. Below 0: none does.
};

struct TraceFile {
  std::vector<TraceSlice> slices;  ///< Of "X" and of pairs of "B" and "E", in the file's order.
  int flows = 0;                   ///< With both ends, each in a slice.
  /// As our traces say: how far times of two hosts may be apart, and what is missing.
  double clock_error_us = 0;
  std::int64_t dropped_events = 0, flows_with_one_end = 0;
};

/// Throws Error{invalid_argument} that begins with `origin`: no trace; an event without its phase
/// or its numbers; a slice that ends before it begins; events of a thread's "B" and "E" that go
/// back in time; slices of a thread that overlap without one being in the other; a flow that starts
/// or ends alone, outside of any slice, or before it began by more than clocks are apart.
TraceFile parse_trace(std::string_view json, const std::string& origin);

/// For people: what was found to be in order.
std::string check_text(const TraceFile& trace);

}  // namespace sprat::planning
