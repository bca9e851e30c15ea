// What a rank keeps of itself for the job's trace, and where it goes.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "comm/timeline/event_ring.hpp"
#include "comm/timeline/rank_timeline.hpp"

namespace sprat::comm::timeline {

class RankRecord {
 public:
  struct About {
    std::string path = {};  ///< Of the whole job's trace.
    int rank = 0, size = 1;
    std::string host = {};
    std::string job = {};  ///< As RankTimeline's.
  };
  explicit RankRecord(About about);

  EventRing& ring() { return ring_; }
  const std::string& path() const { return about_.path; }
  /// How this rank's clock stands to rank 0's, when the job begins; until then they are one clock.
  void note_clock(const ClockReading& reading) { begin_ = reading; }
  const ClockReading& clock() const { return begin_; }

  /// So far. `end`: the clock's latest reading.
  RankTimeline tell(const ClockReading& end) const;
  /// It was collected, so no part of it need be left.
  void collected() noexcept { collected_.store(true); }
  /// Writes this rank's part so far beside the path, unless it was collected, and says where: as
  /// PATH.JOB.rankN, for a process may be a rank of several jobs, one after another or at a time.
  /// Any thread.
  void leave_part() noexcept;

 private:
  void write_part(const std::string& path) const;

  const About about_;
  EventRing ring_;
  ClockReading begin_;
  std::atomic<bool> collected_ = false;
  std::mutex mutex_;  ///< Guards the file, and the one below: a failure may come as the job ends.
  bool told_ = false;
};

}  // namespace sprat::comm::timeline
