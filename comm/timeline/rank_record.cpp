#include "comm/timeline/rank_record.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::comm::timeline {

namespace {

/// Crystals of two hosts drift apart by less: 50 millionths each.
constexpr std::int64_t largest_drift_divisor = 10'000;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What a reading says of a later time, when rank 0 is not asked once more. A rank of rank 0's host
/// has its clock, which does not drift from itself.
ClockReading aged(ClockReading reading, std::int64_t now) {
  if (reading.error > 0) {
    reading.error += std::max<std::int64_t>(0, now - reading.at) / largest_drift_divisor;
  }
  return reading;
}

/// When the job begins: at its end nobody can name another place any more.
void warn_of_no_place(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!path.empty() && ::access(path.c_str(), W_OK) != 0 &&
      ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    log().warn("the trace cannot be written to {}: {}; name a file in a folder of yours", path,
               std::strerror(errno));
  }
}

}  // namespace

RankRecord::RankRecord(About about) : about_(std::move(about)), ring_(about_.rank) {
  if (about_.rank == 0) {  // who writes it
    warn_of_no_place(about_.path);
  }
}

RankTimeline RankRecord::tell(const ClockReading& end) const {
  // Before the events: one that comes meanwhile is later than what is told, and not dropped. Nor is
  // one that another thread is about to put down while the ring has not gone around.
  const std::uint64_t added = ring_.added();
  RankTimeline rank{.rank = about_.rank,
                    .size = about_.size,
                    .host = about_.host,
                    .job = about_.job,
                    .clock = {.begin = begin_, .end = end},
                    .dropped = 0,
                    .events = ring_.events()};
  rank.dropped = added > EventRing::default_room ? added - rank.events.size() : 0;
  return rank;
}

void RankRecord::write_part(const std::string& path) const {
  const std::vector<std::byte> bytes = packed(tell(aged(begin_, now_ns())));
  write_whole_file(path,
                   std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void RankRecord::leave_part() noexcept {
  if (collected_.load()) {
    return;
  }
  try {
    const std::lock_guard lock(mutex_);
    const std::string path = text(about_.path, ".", about_.job, ".rank", about_.rank);
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
