#include "comm/timeline/rank_record.hpp"

#include <exception>
#include <string_view>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::comm::timeline {

RankRecord::RankRecord(About about) : about_(std::move(about)), ring_(about_.rank) {}

RankTimeline RankRecord::tell(const ClockReading& end) const {
  RankTimeline rank{.rank = about_.rank,
                    .size = about_.size,
                    .host = about_.host,
                    .clock = {.begin = begin_, .end = end},
                    .dropped = 0,
                    .events = ring_.events()};
  const std::uint64_t added = ring_.added();  // after the events: none of them is dropped
  rank.dropped = added - rank.events.size();
  return rank;
}

void RankRecord::write_part(const std::string& path) const {
  // Nobody asked rank 0 for the time once more, so the drift is not known.
  const std::vector<std::byte> bytes = packed(tell(begin_));
  write_whole_file(path,
                   std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void RankRecord::leave_part() noexcept {
  if (collected_.load()) {
    return;
  }
  try {
    const std::lock_guard lock(mutex_);
    const std::string path = text(about_.path, ".rank", about_.rank);
    write_part(path);
    if (!std::exchange(told_, true)) {
      log().warn("this rank's part of the trace is in {}; sprat trace join {} puts parts together",
                 path, about_.path);
    }
  } catch (const std::exception& error) {
    log().error("cannot keep this rank's part of the trace: {}", error.what());
  }
}

}  // namespace sprat::comm::timeline
