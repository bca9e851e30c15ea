#include "comm/timeline/rank_timeline.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "comm/base/check.hpp"

namespace sprat::comm::timeline {
namespace {

/// "sprattl" and the layout's version.
constexpr std::uint64_t magic = 0x6c7474'61727073'01ull;

struct Head {
  std::uint64_t magic, events, dropped;
  ClockFit clock;
  std::int32_t rank, size;
  char host[64];
};
static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<RecordedEvent>);

}  // namespace

std::vector<std::byte> packed(const RankTimeline& rank) {
  Head head{.magic = magic,
            .events = rank.events.size(),
            .dropped = rank.dropped,
            .clock = rank.clock,
            .rank = rank.rank,
            .size = rank.size,
            .host = {}};
  std::copy_n(rank.host.data(), std::min(rank.host.size(), sizeof head.host - 1), head.host);
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
  RankTimeline rank{.rank = head.rank,
                    .size = head.size,
                    .host = std::string(text_of(head.host)),
                    .clock = head.clock,
                    .dropped = head.dropped,
                    .events = std::vector<RecordedEvent>(rest / sizeof(RecordedEvent))};
  if (rest > 0) {
    std::memcpy(rank.events.data(), bytes.data() + sizeof head, rest);
  }
  return rank;
}

}  // namespace sprat::comm::timeline
