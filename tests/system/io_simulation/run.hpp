// One run of reading in virtual time: plans, the scheduler, simulated storage, and somebody who
// takes batches in order and computes. What is under test is the product's own: planner and
// scheduler.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/dataset/extent.hpp"
#include "io/reading/plan.hpp"
#include "io/reading/scheduler.hpp"
#include "io/report/interval.hpp"
#include "tests/system/io_simulation/host.hpp"
#include "tests/system/io_simulation/storage.hpp"

namespace sprat::io_simulation {

struct RunSetup {
  StorageModel storage;
  std::vector<StoredFile> files;
  std::vector<Trouble> troubles;
  std::vector<std::vector<io::Extents>> batches;  ///< The extents of each sample.
  double compute_s = 0;                           ///< Of a batch.
  HostModel host = {};
  std::uint32_t alignment = 1;
  io::ReadPlanLimits plan;
  io::SchedulerLimits scheduler;
  std::uint64_t seed = 0;
};

struct RunResult {
  double seconds = 0;  ///< Until the last batch is computed.
  bool stuck = false;  ///< Nothing would ever have happened again.
  std::optional<io::ReadFailure> failure;
  std::uint64_t batches = 0, wrong_batches = 0;  ///< Computed; of them with a wrong bit.
  std::uint64_t read_bytes = 0, most_budget_used = 0;
  std::vector<io::HungRead> hung;
  std::vector<io::Interval> intervals;  ///< A second each, the last one shorter.
};

/// Ends when all batches are computed, a read is given up, or nothing moves.
RunResult run_reading(const RunSetup& setup);

/// No reading, however clever, ends sooner: what each target, server, the network, opening and
/// computing take alone, and how long samples must wait for a target that does not answer.
double least_seconds(const RunSetup& setup);

/// Of an ideal reader that asks for samples in their order, as far ahead as the budget goes, and
/// knows nothing of what comes: each target, server and the network give all that they can, one
/// byte behind the other, without latency.
double seconds_in_order(const RunSetup& setup);

}  // namespace sprat::io_simulation
