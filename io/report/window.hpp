// Ten seconds of a loader, summed up: what causes are looked for in.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/report/interval.hpp"

namespace sprat::io {

struct ObservedTarget {
  Target target = 0;
  double mbps = 0;
  double reads = 0, errors = 0, short_reads = 0;
  double p50_s = 0, p95_s = 0;              ///< Means over intervals, by their reads.
  double in_flight = 0, in_flight_cap = 0;  ///< Means.

  double occupancy() const { return in_flight_cap > 0 ? in_flight / in_flight_cap : 0; }
};

struct ObservedStage {
  std::string name;
  double threads = 0;
  double busy = 0;  ///< Share of its threads' time.
};

/// Rates in MB/s (1e6 bytes); shares from 0 to 1; all else means over the window.
struct ObservedWindow {
  double seconds = 0;
  double samples_per_second = 0;
  double file_system_mbps = 0, delivered_mbps = 0;  ///< From storage; from everywhere.
  double consumer_wait = 0, budget_wait = 0, budget_share = 0;
  double budget_bytes = 0;
  double in_flight = 0, in_flight_cap = 0;
  double opens_per_second = 0, open_p95_s = 0;  ///< p95: by opens.
  double reads_blocked = 0, restored_mbps = 0, released_left_bytes = 0;
  std::optional<double> nic_mbps = {}, link_mbps = {};
  std::optional<CoresInterval> cores;  ///< Sums; the budget is a mean.
  std::vector<ObservedTarget> targets;
  std::vector<ObservedStage> stages;

  /// How full the queues of storage are; 0 if nothing may be in flight.
  double occupancy() const { return in_flight_cap > 0 ? in_flight / in_flight_cap : 0; }
};

ObservedWindow observe(std::span<const Interval> intervals);

/// Queues count as full from here on: requests end and begin, so the mean is below the cap.
inline constexpr double full_queue = 0.8;
/// Whether storage is asked for as much as it takes: all queues together are full, or those of half
/// of the targets.
bool queues_are_full(const ObservedWindow& window);

/// Whether this host's link carries what it can. False if that was not measured.
bool link_is_full(const ObservedWindow& window);

/// The exceptions among three targets or more: those whose rate is above twice the mean over all,
/// or whose p50 is unless most queues are full, if they are a fifth of all or one; else those whose
/// queues are full while the queues of the others, half of all or more, are less than half full.
std::vector<ObservedTarget> hot_targets(const ObservedWindow& window);

}  // namespace sprat::io
