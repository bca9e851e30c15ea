#include "comm/timeline/rank_timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "comm/base/check.hpp"

namespace sprat::comm::timeline {
namespace {

/// "sprattl" and the layout's version.
constexpr std::uint64_t magic = 0x6c7474'61727073'02ull;

struct Head {
  std::uint64_t magic, events, dropped;
  ClockFit clock;
  std::int32_t rank, size;
  char host[64];
  char job[80];
};
static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<RecordedEvent>);

/// 31 years since a host was started, or between the starts of two: sums of some such times fit.
constexpr std::int64_t most_ns = 1'000'000'000'000'000'000;

bool is_time(std::int64_t ns) { return ns >= -most_ns && ns <= most_ns; }

bool is_reading(const ClockReading& reading) {
  return is_time(reading.at) && is_time(reading.offset) && is_time(reading.error);
}

/// Files are named after it, so it leads into no other folder.
bool is_job(std::string_view job) {
  return std::ranges::all_of(
      job, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-'; });
}

/// As its bytes have it: of a bool only two values may be read as one.
bool is_event(std::span<const std::byte> bytes) {
  std::int64_t start = 0, end = 0;
  std::memcpy(&start, bytes.data() + offsetof(RecordedEvent, start_ns), sizeof start);
  std::memcpy(&end, bytes.data() + offsetof(RecordedEvent, end_ns), sizeof end);
  return is_time(start) && is_time(end) && bytes[offsetof(RecordedEvent, receives)] <= std::byte{1};
}

}  // namespace

std::vector<std::byte> packed(const RankTimeline& rank) {
  Head head{.magic = magic,
            .events = rank.events.size(),
            .dropped = rank.dropped,
            .clock = rank.clock,
            .rank = rank.rank,
            .size = rank.size,
            .host = {},
            .job = {}};
  std::copy_n(rank.host.data(), std::min(rank.host.size(), sizeof head.host - 1), head.host);
  std::copy_n(rank.job.data(), std::min(rank.job.size(), sizeof head.job - 1), head.job);
  const std::size_t bytes = rank.events.size() * sizeof(RecordedEvent);
  std::vector<std::byte> whole(sizeof head + bytes);
  std::memcpy(whole.data(), &head, sizeof head);
  if (bytes > 0) {
    std::memcpy(whole.data() + sizeof head, rank.events.data(), bytes);
  }
  return whole;
}

RankTimeline unpacked(std::span<const std::byte> bytes, const std::string& origin) {
  Head head{};
  require(bytes.size() >= sizeof head, origin, " has ", bytes.size(),
          " bytes, fewer than a rank's part of a trace");
  std::memcpy(&head, bytes.data(), sizeof head);
  require(head.magic == magic, origin,
          " is no rank's part of a trace, or one of another version of Sprat");
  const std::size_t rest = bytes.size() - sizeof head;
  require(rest % sizeof(RecordedEvent) == 0 && head.events == rest / sizeof(RecordedEvent), origin,
          " says that it holds ", head.events, " events, and has ", rest, " bytes for them");
  require(head.size > 0 && head.rank >= 0 && head.rank < head.size, origin, " is of rank ",
          head.rank, " of ", head.size);
  require(is_job(text_of(head.job)), origin, " is of a job whose name is none");
  require(is_reading(head.clock.begin) && is_reading(head.clock.end), origin,
          " has a clock that shows no time");
  for (std::size_t at = sizeof head; at < bytes.size(); at += sizeof(RecordedEvent)) {
    require(is_event(bytes.subspan(at, sizeof(RecordedEvent))), origin, " has no event at byte ",
            at);
  }
  RankTimeline rank{.rank = head.rank,
                    .size = head.size,
                    .host = std::string(text_of(head.host)),
                    .job = std::string(text_of(head.job)),
                    .clock = head.clock,
                    .dropped = head.dropped,
                    .events = std::vector<RecordedEvent>(rest / sizeof(RecordedEvent))};
  if (rest > 0) {
    std::memcpy(rank.events.data(), bytes.data() + sizeof head, rest);
  }
  return rank;
}

}  // namespace sprat::comm::timeline
