// An event as it is kept: of one size, so that a ring of them is allocated once.
#pragma once

#include <cstdint>
#include <string_view>

#include "sprat/trace.hpp"

namespace sprat::comm::timeline {

/// Times are nanoseconds of the rank's own clock. Names end with their array if not before.
struct RecordedEvent {
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint64_t bytes = 0;
  std::uint64_t flow = 0;
  std::int64_t sequence = -1;
  std::int32_t stage = -1, microbatch = -1;
  TraceRow row{};
  bool receives = false;
  std::uint8_t reserved[6] = {};
  char name[32] = {}, algorithm[16] = {}, place[24] = {};
};
static_assert(sizeof(RecordedEvent) == 128);

RecordedEvent recorded(const TraceEvent& event) noexcept;

template <std::size_t size>
std::string_view text_of(const char (&name)[size]) noexcept {
  const std::string_view all(name, size);
  return all.substr(0, all.find('\0'));
}

}  // namespace sprat::comm::timeline
