// What one rank tells of itself, as a value and as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/timeline/clock_fit.hpp"
#include "comm/timeline/event.hpp"

namespace sprat::comm::timeline {

struct RankTimeline {
  int rank = 0, size = 1;
  std::string host = {};
  /// The same on every rank of a job, and on no other's; of digits, small letters and '-'.
  std::string job = {};
  ClockFit clock = {};
  std::uint64_t dropped = 0;  ///< Events that had no room.
  std::vector<RecordedEvent> events = {};
};

/// For machines of one kind: numbers are as they lie in memory.
std::vector<std::byte> packed(const RankTimeline& rank);
/// Throws Error{invalid_argument} that begins with `origin` if these are no such bytes.
RankTimeline unpacked(std::span<const std::byte> bytes, const std::string& origin);

}  // namespace sprat::comm::timeline
