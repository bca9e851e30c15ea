// What was seen of this host's jobs at one moment: what ranks show, and what the kernel says of
// their processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/record/flight_record.hpp"

namespace sprat::cli {

struct ProcessUse {
  std::string command;  ///< Printable; "?" if it cannot be read.
  std::string user;     ///< Whose it is; empty: of whoever looks.
  char state = '?';     ///< As in /proc/PID/stat: R, S, D, T, ...
  double cpu_seconds = 0;
  double lived = 0;  ///< Seconds since it was started.
  std::uint64_t resident_bytes = 0;
};

/// Of a process on GPUs.
struct ProcessGpus {
  std::optional<std::uint64_t> bytes;  ///< On all of them together; empty: not told.
  std::optional<double> busy;  ///< From 0 to 1, the mean of those it is on; empty: not told.
};

struct RankLook {
  pid_t pid = 0;  ///< As this process sees it.
  collectives::FlightRecord record;
  /// Since the rank was found: how often it was looked at, and how often others waited for it then.
  std::uint64_t looks = 0, late = 0;
};

struct HostLook {
  double taken = 0;             ///< On the clock of the records' times.
  std::vector<RankLook> ranks;  ///< By job and rank.
  std::map<pid_t, ProcessUse> processes;
  /// Empty: this host has no GPU that tells. Of each process that is on one.
  std::optional<std::map<pid_t, ProcessGpus>> gpus;
  std::vector<std::string> unreadable;  ///< Processes that show what this build cannot read.
};

/// Places in `looks` of ranks that another rank here has waited for, in a collective that this one
/// had not called. Ascending, each once. Exact, although records are read one after the other: all
/// times are of one clock.
std::vector<std::size_t> late_ranks(std::span<const RankLook> looks);

}  // namespace sprat::cli
