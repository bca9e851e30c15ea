// Notes what a loader would report each second.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "io/dataset/extent.hpp"
#include "io/reading/scheduler.hpp"
#include "io/report/interval.hpp"
#include "tests/system/io_simulation/host.hpp"
#include "tests/system/io_simulation/storage.hpp"

namespace sprat::io_simulation {

class Observer {
 public:
  Observer(double network, const io::SchedulerLimits& limits, const HostModel& host);

  /// What holds until the next moment.
  struct Meanwhile {
    bool computes = false, decodes = false;
    double reads_wait_for_restore = 0;
    const io::Scheduler& scheduler;
  };
  void passes(double seconds, const Meanwhile& meanwhile);
  void opened(const std::vector<SimulatedOpen>& opens);
  void ended(const SimulatedDone& done);
  void took(const std::vector<io::Extents>& batch);
  /// A batch's reduction takes so long from now on, where it would take host.reduce_s alone.
  void reduces(double seconds);
  /// Closes the interval if a second is over.
  void reach(double now, std::uint64_t restored_bytes, std::uint64_t released_bytes);
  double next_second() const { return begin_ + 1; }
  /// With the interval that is not over.
  std::vector<io::Interval> finish(double now);

 private:
  struct TargetNotes {
    std::uint64_t bytes = 0, errors = 0, cut = 0;
    std::vector<double> took;
    double in_flight_seconds = 0, cap_seconds = 0;
  };
  /// Sums over the interval, of values times seconds.
  struct Sums {
    double in_flight = 0, queued = 0, restores = 0, waits = 0, full = 0, cap = 0, decodes = 0;
  };

  void close(double now);

  double network_;
  io::SchedulerLimits limits_;
  HostModel host_;
  double reductions_ = 0, reduced_in_ = 0;  // of the interval: how many, and their seconds
  double begin_ = 0;
  io::Interval now_;
  Sums sums_;
  std::map<Target, TargetNotes> targets_;
  std::vector<double> opens_;
  std::vector<io::Interval> intervals_;
};

}  // namespace sprat::io_simulation
