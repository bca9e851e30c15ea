// What was observed of a loader in one interval, a second as a rule: all that reports say and that
// diagnosis reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/reading/request.hpp"

namespace sprat::io {

/// Bytes that samples were made of, by where they came from.
struct BytesBySource {
  std::uint64_t file_system = 0;  ///< Storage, or the server's cache: nobody here can tell.
  std::uint64_t page_cache = 0;
  std::uint64_t host_cache = 0;  ///< This host's disk.
  std::uint64_t peers = 0;       ///< Other hosts of the job.

  friend bool operator==(const BytesBySource&, const BytesBySource&) = default;
};

/// Reads of one target that ended in the interval, the failed ones too.
struct TargetInterval {
  Target target = 0;
  std::uint64_t bytes = 0, reads = 0;
  std::uint64_t errors = 0;                 ///< Reads that failed.
  std::uint64_t short_reads = 0;            ///< Reads that gave less than the file has there.
  double p50_s = 0, p95_s = 0, p99_s = 0;   ///< From the read's start to its end; 0 of no reads.
  double in_flight = 0, in_flight_cap = 0;  ///< Requests, the mean over the interval.

  friend bool operator==(const TargetInterval&, const TargetInterval&) = default;
};

/// A stage of decoding: a function of the user's, or one of ours.
struct StageInterval {
  std::string name;
  int threads = 0;
  double busy_seconds = 0;  ///< Of all its threads together: at most threads * Interval::seconds.

  friend bool operator==(const StageInterval&, const StageInterval&) = default;
};

struct OpensInterval {
  std::uint64_t files = 0;
  double p95_s = 0;

  friend bool operator==(const OpensInterval&, const OpensInterval&) = default;
};

/// Files whose data are in S3 alone until somebody restores them.
struct ReleasedInterval {
  double reads_blocked = 0;          ///< Reads that wait for a restore, the mean.
  std::uint64_t restored_bytes = 0;  ///< Of files that came back in the interval.
  std::uint64_t left_bytes = 0;      ///< Of files of this epoch that are still released.

  friend bool operator==(const ReleasedInterval&, const ReleasedInterval&) = default;
};

/// Cores of this host, and what took them.
struct CoresInterval {
  double budget = 0;  ///< Cores that this process may use for all of the following.
  double decode_seconds = 0, read_seconds = 0;  ///< CPU time.
  double reduce_seconds = 0;                    ///< CPU time of reductions; 0: not measured.
  std::uint64_t reduced_bytes = 0;              ///< By reductions that ended.
  double reduced_in_seconds = 0;                ///< From their starts to their ends, summed.
  /// By how much reductions that ran beside decoding took longer than equally large ones that did
  /// not, since the loader began: 0.2 is a fifth longer. Empty until both were seen.
  std::optional<double> slowdown = {};

  friend bool operator==(const CoresInterval&, const CoresInterval&) = default;
};

/// All shares are from 0 to 1. An empty optional was not measured.
struct Interval {
  double begin_s = 0;  ///< Since the loader began.
  double seconds = 1;
  std::uint64_t samples = 0;
  BytesBySource bytes = {};
  std::vector<TargetInterval> targets = {};  ///< Ascending; those with reads ended or under way.
  double in_flight = 0, in_flight_cap = 0;   ///< Requests of all targets, means.
  double queued = 0;                         ///< Requests that a cap holds back, the mean.
  std::uint64_t budget_used_bytes = 0, budget_bytes = 0;
  double consumer_wait = 0;  ///< Share of the time in which whoever computes waited for samples.
  /// Share of the time in which no read could start since the budget was full: the consumer is
  /// slow.
  double budget_wait = 0;
  std::vector<StageInterval> stages = {};  ///< In their order.
  OpensInterval opens = {};
  ReleasedInterval released = {};
  std::optional<std::uint64_t> nic_bytes = {};  ///< Received by this host's interfaces, all of it.
  std::optional<double> link_bytes_per_second = {};  ///< What those interfaces can receive.
  std::optional<CoresInterval> cores = {};
  std::optional<double> gpu_busy = {};  ///< The mean of this process's GPUs, as NVML tells.
  /// Seconds of each step of training that ended in the interval, as far as somebody tells them.
  std::vector<double> step_seconds = {};

  friend bool operator==(const Interval&, const Interval&) = default;
};

}  // namespace sprat::io
