// Looks at this host's ranks again and again, without asking them anything.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/top/gpus.hpp"
#include "cli/top/look.hpp"
#include "collectives/record/flight_record.hpp"

namespace sprat::cli {

/// Sees the ranks that this user may look into: its own, or, as root, everybody's.
class HostSampler {
 public:
  explicit HostSampler(GpuProcesses gpus = GpuProcesses()) : gpus_(std::move(gpus)) {}

  /// Looks for processes that have come, and forgets those that have gone.
  void find();
  /// One of many looks at who waits for whom.
  void sample();
  /// All there is to see now. Counts samples since each rank was found.
  HostLook look();

 private:
  struct Counted {
    std::uint64_t looks = 0, late = 0;
  };
  /// A process may be ranks of several jobs: under NCCL's name each communicator is one.
  using RankKey = std::tuple<pid_t, std::string, int>;
  static RankKey key_of(const RankLook& look);
  std::vector<RankLook> read();

  std::map<pid_t, collectives::ShownRanks> shown_;
  std::map<RankKey, Counted> counted_;
  std::vector<std::string> unreadable_;
  GpuProcesses gpus_;
};

}  // namespace sprat::cli
