#include "comm/timeline/rank_record.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

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
  std::FILE* file = std::fopen(path.c_str(), "we");
  need(file != nullptr, path, ": ", std::strerror(errno));
  bool good = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  good = std::fclose(file) == 0 && good;  // an error of a full disk may come only here
  need(good, path, ": ", std::strerror(errno));
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
