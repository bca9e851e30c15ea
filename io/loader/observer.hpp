// What is observed of a loader while it runs, interval by interval.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/caches/source_choice.hpp"
#include "io/loader/target_reads.hpp"
#include "io/loader/time_mean.hpp"
#include "io/readers/reader.hpp"
#include "io/reading/scheduler.hpp"
#include "io/report/interval.hpp"
#include "io/report/percentiles.hpp"

namespace sprat::io {

/// How full the queues are at a moment.
struct QueueState {
  double in_flight = 0, cap = 0, queued = 0;
  std::uint64_t budget_used = 0;
  bool budget_blocks = false;  ///< Requests wait for room in the budget, and nothing else goes on.
  ReleasedInterval released = {};  ///< restored_bytes: since the last state.
  std::string waits_for = {};      ///< A released file that reads wait for; empty if none do.
};

/// Why a batch does not come, as far as queues tell, and what to do: the end of an error's
/// sentence.
std::string what_to_do_about(const QueueState& queues);

/// Any thread, several at once.
class Observer final {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Observer(std::uint64_t budget_bytes);

  void read_ended(const ReadDone& done, Target target, std::uint64_t asked_bytes);
  /// Bytes came from a cache.
  void brought_near(BlockSource source, std::uint64_t bytes);
  void reads_were_cached(const CachedReadSum& sum);
  void file_opened(std::chrono::nanoseconds took);
  /// From now on it is so.
  void queues_are(const QueueState& state, std::span<const TargetLoad> targets);
  void samples_given(std::uint64_t samples);
  void step_ended(double seconds);
  QueueState queues() const;

  /// What only the loader knows, in all since its beginning.
  struct Totals {
    std::chrono::nanoseconds waited{};
    std::vector<StageInterval> stages;        ///< busy_seconds since the beginning.
    std::optional<CoresInterval> cores = {};  ///< Since the last call.
  };
  /// What was observed since the last call, or the beginning.
  Interval take(const Totals& totals);

 private:
  struct Sums {
    std::uint64_t samples = 0, opens = 0, restored_bytes = 0;
    BytesBySource bytes;
    LatencyHistogram open_latency;
    std::vector<double> steps;
  };

  TargetReads& reads_of(Target target);

  mutable std::mutex mutex_;  // guards what follows
  const std::uint64_t budget_bytes_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point interval_begin_ = begin_;
  QueueState queues_;
  TimeMean in_flight_{begin_}, cap_{begin_}, queued_{begin_}, blocked_{begin_};
  TimeMean held_{begin_};  // reads of released files
  std::map<Target, TargetReads> targets_;
  Sums sums_;
  Totals before_;
};

}  // namespace sprat::io
