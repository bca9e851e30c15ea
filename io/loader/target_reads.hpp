// What reads of one storage target were like in an interval.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "io/loader/time_mean.hpp"
#include "io/readers/reader.hpp"
#include "io/report/interval.hpp"
#include "io/report/percentiles.hpp"

namespace sprat::io {

/// Reads of one target that were copies out of the page cache.
struct CachedReadSum {
  Target target = 0;
  std::uint64_t reads = 0, bytes = 0;
  std::chrono::nanoseconds took{};  ///< All of them together.
};

/// One thread at a time.
class TargetReads {
 public:
  explicit TargetReads(TimeMean::Time begin) : in_flight_(begin), cap_(begin) {}

  void add(const ReadDone& done, std::uint64_t asked_bytes) {
    ++reads_;
    bytes_ += done.bytes;
    errors_ += done.error != 0 ? 1 : 0;
    short_reads_ += done.error == 0 && done.bytes < asked_bytes ? 1 : 0;
    latency_.add(std::chrono::duration<double>(done.took).count());
  }
  /// At least one read.
  void add(const CachedReadSum& sum) {
    reads_ += sum.reads;
    bytes_ += sum.bytes;
    const double all = std::chrono::duration<double>(sum.took).count();
    latency_.add(all / static_cast<double>(sum.reads), sum.reads);
  }
  void queue_is(double in_flight, double cap, TimeMean::Time now) {
    in_flight_.becomes(in_flight, now);
    cap_.becomes(cap, now);
  }
  /// Since the last take(), or the beginning.
  TargetInterval take(Target target, TimeMean::Time now) {
    TargetInterval interval;
    interval.target = target;
    interval.bytes = std::exchange(bytes_, 0);
    interval.reads = std::exchange(reads_, 0);
    interval.errors = std::exchange(errors_, 0);
    interval.short_reads = std::exchange(short_reads_, 0);
    interval.p50_s = latency_.percentile(0.5);
    interval.p95_s = latency_.percentile(0.95);
    interval.p99_s = latency_.percentile(0.99);
    interval.in_flight = in_flight_.take(now);
    interval.in_flight_cap = cap_.take(now);
    latency_.clear();
    return interval;
  }

 private:
  std::uint64_t bytes_ = 0, reads_ = 0, errors_ = 0, short_reads_ = 0;
  LatencyHistogram latency_;
  TimeMean in_flight_, cap_;
};

}  // namespace sprat::io
