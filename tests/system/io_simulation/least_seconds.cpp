// The bound that runs are held against. Demands lie on the leaves of a tree (targets in servers in
// one network), so a flow that meets them within a time exists if each node can carry what lies
// below it: the max-flow bound is the largest of the nodes' own times.
#include <algorithm>
#include <map>
#include <set>

#include "tests/system/io_simulation/run.hpp"

namespace sprat::io_simulation {
namespace {

struct Demand {
  std::map<Target, double> targets;
  std::map<int, double> servers;
  double all = 0;
  std::set<std::uint32_t> files;
};

Demand demand_of(const RunSetup& setup) {
  Demand demand;
  for (const auto& batch : setup.batches) {
    for (const io::Extents& sample : batch) {
      for (const io::Extent& extent : sample) {
        const StoredFile& file = setup.files[extent.file];
        const io::PlannedFile place{.bytes = file.bytes, .layout = &file.layout};
        demand.files.insert(extent.file);
        for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes;) {
          const io::TargetRun run = target_run(place, at);
          const std::uint64_t until = std::min(run.end, extent.offset + extent.bytes);
          const auto bytes = static_cast<double>(until - at);
          demand.targets[run.target] += bytes;
          demand.servers[setup.storage.targets[static_cast<std::size_t>(run.target)].server] +=
              bytes;
          demand.all += bytes;
          at = until;
        }
      }
    }
  }
  return demand;
}

/// What is left of a target's rate at a moment.
double share_at(const RunSetup& setup, Target target, double now) {
  double share = 1;
  for (const Trouble& trouble : setup.troubles) {
    if (trouble.target == target && trouble.at(now)) {
      share *= trouble.kind == Trouble::Kind::slow    ? trouble.factor
               : trouble.kind == Trouble::Kind::fails ? 0
                                                      : 1;
    }
  }
  return share;
}

/// Bytes that a target can have given by then: its base, and what its credit allows above.
double least_of_target(const RunSetup& setup, Target target, double bytes) {
  const TargetModel& model = setup.storage.targets[static_cast<std::size_t>(target)];
  constexpr double step = 1e-3;
  double now = 0, base = 0, above = 0;
  while (base + std::min(above, model.credit_bytes) < bytes) {
    const double share = share_at(setup, target, now);
    base += share * model.base * step;
    above += share * (model.burst - model.base) * step;
    now += step;
  }
  return now;
}

/// The most that all targets together can give.
double most_rate(const RunSetup& setup) {
  std::map<int, double> servers;
  for (const TargetModel& target : setup.storage.targets) {
    servers[target.server] += std::max(target.base, target.burst);
  }
  double rate = 0;
  for (const auto& [server, targets] : servers) {
    rate += std::min(targets, setup.storage.flow);
  }
  return std::min(rate, setup.storage.network);
}

bool wants(const RunSetup& setup, const std::vector<io::Extents>& batch, Target target) {
  for (const io::Extents& sample : batch) {
    for (const io::Extent& extent : sample) {
      const StoredFile& file = setup.files[extent.file];
      const io::PlannedFile place{.bytes = file.bytes, .layout = &file.layout};
      for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes;) {
        const io::TargetRun run = target_run(place, at);
        if (run.target == target) {
          return true;
        }
        at = run.end;
      }
    }
  }
  return false;
}

double bytes_of(const std::vector<io::Extents>& batch) {
  double bytes = 0;
  for (const io::Extents& sample : batch) {
    for (const io::Extent& extent : sample) {
      bytes += static_cast<double>(extent.bytes);
    }
  }
  return bytes;
}

/// While a target does not answer, the first batch that wants it and cannot have been asked for
/// before waits, since batches are taken in order. Behind it come its computing and that of all
/// later ones, and the reading of what lies more than a budget beyond it.
double least_behind(const RunSetup& setup, const Trouble& trouble) {
  const double rate = most_rate(setup);
  const auto budget = static_cast<double>(setup.scheduler.budget_bytes);
  const double asked = rate * trouble.from_s + budget;
  double before = 0;
  std::size_t waits = 0;
  while (waits < setup.batches.size() &&
         (before <= asked || !wants(setup, setup.batches[waits], trouble.target))) {
    before += bytes_of(setup.batches[waits]);
    ++waits;
  }
  if (waits == setup.batches.size()) {
    return 0;
  }
  double beyond = 0;
  for (std::size_t batch = waits; batch < setup.batches.size(); ++batch) {
    beyond += bytes_of(setup.batches[batch]);
  }
  const double computing = static_cast<double>(setup.batches.size() - waits) * setup.compute_s;
  return trouble.until_s + std::max(computing, (beyond - budget) / rate);
}

}  // namespace

double least_seconds(const RunSetup& setup) {
  const Demand demand = demand_of(setup);
  double targets = 0;
  for (const auto& [target, bytes] : demand.targets) {
    targets = std::max(targets, least_of_target(setup, target, bytes));
  }
  double others = demand.all / setup.storage.network;
  for (const auto& [server, bytes] : demand.servers) {
    others = std::max(others, bytes / setup.storage.flow);
  }
  double opens = setup.storage.opens_per_second;
  for (const Trouble& trouble : setup.troubles) {
    opens *= trouble.kind == Trouble::Kind::metadata && trouble.from_s <= 0 &&
                     trouble.until_s == never_ending
                 ? trouble.factor
                 : 1;
  }
  others = std::max(others, static_cast<double>(demand.files.size()) / opens);
  others = std::max(others, static_cast<double>(setup.batches.size()) * setup.compute_s);
  double least = std::max(targets, others);
  for (const Trouble& trouble : setup.troubles) {
    if (trouble.kind == Trouble::Kind::fails || trouble.kind == Trouble::Kind::hangs) {
      least = std::max(least, least_behind(setup, trouble));
    }
  }
  return least;
}

}  // namespace sprat::io_simulation
