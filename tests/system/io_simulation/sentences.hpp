// What a loader's report says of simulated runs that are known to be limited by something: a table
// of runs, drawn from seeds, and the limits that must be named.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "io/report/diagnosis.hpp"
#include "tests/system/io_simulation/run.hpp"

namespace sprat::io_simulation {

/// A run, what its user has said of the storage, and when what limits begins and ends.
struct LimitedRun {
  RunSetup setup;
  io::FsxSystem system;  ///< What it is.
  io::StorageFacts facts;
  double from_s = 0, until_s = never_ending;
};

struct LimitKind {
  std::string_view name;
  /// Which is to be named first. Two: both are there, either may be named, and nothing else.
  std::set<io::Limit> limits;
  LimitedRun (*draw)(Random& random);
};

/// Twelve, each limited by one thing.
std::span<const LimitKind> limited_runs();
/// Computing is the limit: nothing else may be named at any second.
const LimitKind& healthy_run();
/// Limited by two things at once.
std::span<const LimitKind> twice_limited_runs();

struct Judgement {
  bool right = false;
  std::set<io::Limit> named;  ///< At any second.
  std::string sentence;       ///< At the second that was judged.
};

/// Runs it and reads its report, a second after the other. What lasts is judged some seconds before
/// the end, when reading still goes on; what passes, at its best second until shortly after it.
Judgement judge(const LimitKind& kind, std::uint64_t seed);

}  // namespace sprat::io_simulation
