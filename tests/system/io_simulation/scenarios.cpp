#include "tests/system/io_simulation/scenarios.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "tests/system/io_simulation/draws.hpp"

namespace sprat::io_simulation {
namespace {

StorageModel draw_storage(Random& random) {
  StorageModel model;
  const int targets = random.between(4, 10);
  const TargetModel each{.base = between(random, 60e6, 250e6),
                         .latency_s = between(random, 3e-4, 5e-3),
                         .jitter = between(random, 0, 1)};
  for (int target = 0; target < targets; ++target) {
    model.targets.push_back(each);
    model.targets.back().burst = each.base;
    model.targets.back().server = target / 2;
  }
  model.network = 12.5e9;
  return model;
}

RunSetup draw_undisturbed(Random& random) {
  RunSetup setup;
  setup.storage = draw_storage(random);
  const auto targets = static_cast<int>(setup.storage.targets.size());
  const auto all_bytes = static_cast<std::uint64_t>(storage_rate(setup) * between(random, 12, 20));
  setup.files = draw_files(random, targets, all_bytes);
  setup.scheduler.budget_bytes = static_cast<std::uint64_t>(targets) * 96 * mib;
  setup.scheduler.reads = 256;
  setup.scheduler.retry_for = std::chrono::seconds(60);
  setup.scheduler.seed = random.next();
  setup.batches = draw_batches(random, setup.files,
                               {.record = log_between(random, 300.0 * kib, 12.0 * mib),
                                .batch = setup.scheduler.budget_bytes / 16,
                                .all = all_bytes});
  setup.alignment = random.once_in(2) ? 4096 : 1;
  // Demand is a little above what storage gives, so that storage is the limit.
  const double batch_bytes =
      static_cast<double>(all_bytes) / static_cast<double>(setup.batches.size());
  setup.compute_s = 0.8 * batch_bytes / storage_rate(setup);
  setup.seed = random.next();
  return setup;
}

void nothing(RunSetup&, Random&) {}

void spend_burst(RunSetup& setup, Random& random) {
  const double above = between(random, 1.5, 4);
  const double spent_at = middle_of(setup) / above;
  for (TargetModel& target : setup.storage.targets) {
    target.burst = target.base * above;
    target.credit_bytes = (target.burst - target.base) * spent_at;
  }
  setup.storage.flow = 1e10;
  setup.compute_s /= above;
}

void heat_target(RunSetup& setup, Random& random) {
  setup.troubles.push_back({.kind = Trouble::Kind::slow,
                            .target = any_target(setup, random),
                            .from_s = between(random, 0, middle_of(setup)),
                            .factor = between(random, 0.2, 0.6)});
}

void fail_over(RunSetup& setup, Random& random) {
  const double begin = between(random, 1, middle_of(setup));
  setup.troubles.push_back({.kind = Trouble::Kind::fails,
                            .target = any_target(setup, random),
                            .from_s = begin,
                            .until_s = begin + 3,
                            .error = random.once_in(2) ? EIO : ESHUTDOWN});
}

void turn_stale(RunSetup& setup, Random& random) {
  for (int files = random.between(1, 3); files > 0; --files) {
    setup.troubles.push_back({.kind = Trouble::Kind::stale,
                              .file = static_cast<std::uint32_t>(random.below(setup.files.size())),
                              .from_s = between(random, 1, middle_of(setup))});
  }
}

void cut_reads(RunSetup& setup, Random& random) {
  setup.troubles.push_back(
      {.kind = Trouble::Kind::short_reads, .factor = between(random, 0.01, 0.2)});
}

void flip_bits(RunSetup& setup, Random& random) {
  setup.troubles.push_back({.kind = Trouble::Kind::flips, .factor = between(random, 1e-3, 2e-2)});
}

void hang_target(RunSetup& setup, Random& random) {
  const double begin = between(random, 1, middle_of(setup));
  setup.troubles.push_back({.kind = Trouble::Kind::hangs,
                            .target = any_target(setup, random),
                            .from_s = begin,
                            .until_s = begin + between(random, 35, 60)});
}

void release_files(RunSetup& setup, Random& random) {
  for (StoredFile& file : setup.files) {
    file.restore_s = random.once_in(3) ? between(random, 1, 5) : 0;
  }
}

void slow_client(RunSetup& setup, Random& random) {
  setup.compute_s *= between(random, 1.5, 3) / 0.8;
}

/// Files of a record or few, and a metadata server that opens hardly as many as are needed.
void storm_metadata(RunSetup& setup, Random& random) {
  const auto targets = static_cast<int>(setup.storage.targets.size());
  const std::uint64_t file_bytes = log_between(random, 256.0 * kib, 2.0 * mib);
  setup.files.clear();
  setup.batches.clear();
  for (std::uint32_t file = 0; file < 4000; ++file) {
    io::StripedRange range{
        .begin = 0, .end = file_bytes, .targets = {random.between(0, targets - 1)}};
    setup.files.push_back({.bytes = file_bytes, .layout = {range}});
    if (file % 50 == 0) {
      setup.batches.emplace_back();
    }
    setup.batches.back().push_back({{.file = file, .offset = 0, .bytes = file_bytes}});
  }
  setup.storage.opens_per_second =
      between(random, 0.3, 0.8) * storage_rate(setup) / static_cast<double>(file_bytes);
  setup.compute_s = 0.5 * 50 / setup.storage.opens_per_second;
}

void limit_network(RunSetup& setup, Random& random) {
  setup.storage.network = between(random, 0.3, 0.8) * storage_rate(setup);
}

constexpr std::array all_scenarios = {
    Scenario{"steady", nothing},
    Scenario{"burst_spent", spend_burst},
    Scenario{"hot_target", heat_target},
    Scenario{"failover", fail_over},
    Scenario{"stale_files", turn_stale},
    Scenario{"short_reads", cut_reads},
    Scenario{"bit_flips", flip_bits},
    Scenario{"hanging_reads", hang_target},
    Scenario{"released_files", release_files, false},
    Scenario{"slow_client", slow_client},
    Scenario{"metadata_storm", storm_metadata},
    Scenario{"network_limit", limit_network},
};

}  // namespace

std::span<const Scenario> scenarios() { return all_scenarios; }

double middle_of(const RunSetup& setup) {
  double bytes = 0;
  for (const auto& batch : setup.batches) {
    for (const io::Extents& sample : batch) {
      for (const io::Extent& extent : sample) {
        bytes += static_cast<double>(extent.bytes);
      }
    }
  }
  return bytes / storage_rate(setup) / 2;
}

RunSetup draw(const Scenario& scenario, std::uint64_t seed) {
  Random random(seed);
  RunSetup setup = draw_undisturbed(random);
  scenario.disturb(setup, random);
  return setup;
}

}  // namespace sprat::io_simulation
