// How many cores a rank has, and how they are shared out.
#pragma once

#include <optional>
#include <string>

namespace sprat::io {

struct CoreFacts {
  int host = 1;     ///< Cores of the machine that are on.
  int allowed = 1;  ///< Of these, those that this process may run on.
  /// Cores' worth of time that its control groups leave it; nothing where none limits it.
  std::optional<double> quota = {};
};

struct CoreWishes {
  int ranks_on_host = 1;
  int read_threads = 0, decode_threads = 0;  ///< 0: a quarter of the cores, at least one.
};

struct CorePlan {
  double cores = 1;  ///< Of this rank, for all of: reading, decoding, reductions, the user's own.
  int read_threads = 1, decode_threads = 1;
};

/// Pure. Ranks that are bound to cores of their own have those; others share what there is.
CorePlan plan_cores(const CoreFacts& facts, const CoreWishes& wishes);

/// Of this process. `root` and `membership` are other places in tests.
CoreFacts own_core_facts(const std::string& root = "/sys/fs/cgroup",
                         const std::string& membership = "/proc/self/cgroup");

}  // namespace sprat::io
