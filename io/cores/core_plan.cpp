// The files of control groups are found as comm/base/memory_room.cpp finds those of memory: every
// folder on the way up from the process's own is tried, since a container may show another root.
#include "io/cores/core_plan.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>

namespace sprat::io {
namespace {

/// Version 2: "200000 100000", microseconds of each period, or "max 100000".
std::optional<double> quota_of_version_2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? std::optional(quota / period)
                                                            : std::nullopt;
}

/// Version 1: two files; a quota of -1 is none.
std::optional<double> quota_of_version_1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0
             ? std::optional(quota / period)
             : std::nullopt;
}

bool has_controller(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == wanted) {
      return true;
    }
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

void take_least(std::optional<double>& least, std::optional<double> one) {
  if (one && (!least || *one < *least)) {
    least = one;
  }
}

/// Each group on the way up may have a quota, and the least one holds.
std::optional<double> quota_on_the_way_up(const std::string& root, const std::string& membership) {
  std::optional<double> least;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (!controllers.empty() && !has_controller(controllers, "cpu")) {
      continue;
    }
    for (bool last = false; !last;) {
      last = path.empty();
      if (controllers.empty()) {
        take_least(least, quota_of_version_2(root + path));
      } else {
        take_least(least, quota_of_version_1(root + "/cpu" + path));
      }
      path.resize(last ? 0 : path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return least;
}

int at_least_one(double threads) { return std::max(1, static_cast<int>(threads)); }

}  // namespace

CorePlan plan_cores(const CoreFacts& facts, const CoreWishes& wishes) {
  const double ranks = std::max(1, wishes.ranks_on_host);
  // Sets of cores that would not fit on the host side by side overlap: then all ranks run on all.
  const bool bound = facts.allowed * ranks <= facts.host;
  double cores = bound ? facts.allowed : facts.allowed / ranks;
  if (facts.quota) {
    // A launcher that makes a group for each rank would give each its own quota; one for all is
    // the rule, and to take less is the safer error.
    cores = std::min(cores, *facts.quota / ranks);
  }
  const int quarter = at_least_one(cores / 4);
  return {.cores = cores,
          .read_threads = wishes.read_threads > 0 ? wishes.read_threads : quarter,
          .decode_threads = wishes.decode_threads > 0 ? wishes.decode_threads : quarter};
}

CoreFacts own_core_facts(const std::string& root, const std::string& membership) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int host = static_cast<int>(std::max(1L, online));
  // On a machine of more than 1024 cores the call fails: then all that are on are taken.
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0;
  return {.host = host,
          .allowed = known ? CPU_COUNT(&set) : host,
          .quota = quota_on_the_way_up(root, membership)};
}

}  // namespace sprat::io
