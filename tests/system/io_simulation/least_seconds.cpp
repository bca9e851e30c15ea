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

void add_demand(const RunSetup& setup, const std::vector<io::Extents>& batch, Demand& demand) {
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
        demand.servers[setup.storage.targets[static_cast<std::size_t>(run.target)].server] += bytes;
        demand.all += bytes;
        at = until;
      }
    }
  }
}

Demand demand_of(const RunSetup& setup) {
  Demand demand;
  for (const auto& batch : setup.batches) {
    add_demand(setup, batch, demand);
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

/// Gives bytes in the order in which they are asked for, one after the other.
class TargetClock {
 public:
  TargetClock(const RunSetup& setup, Target target)
      : setup_(setup), target_(target), credit_(model().credit_bytes) {}

  /// When all of them are there, which are not asked for before.
  double give(double bytes, double asked) {
    if (asked > now_) {
      credit_ = std::min(model().credit_bytes, credit_ + model().base * (asked - now_));
      now_ = asked;
    }
    while (bytes > tiny_bytes) {
      const double rate = (answers() ? share_at(setup_, target_, now_) : 0) *
                          (credit_ > 0 ? model().burst : model().base);
      const double passed = std::min(longest_step, rate > 0 ? bytes / rate : longest_step);
      bytes -= rate * passed;
      credit_ = std::clamp(credit_ - (rate - model().base) * passed, 0.0, model().credit_bytes);
      now_ += passed;
    }
    return now_;
  }

 private:
  static constexpr double longest_step = 1e-3, tiny_bytes = 0.5;

  const TargetModel& model() const {
    return setup_.storage.targets[static_cast<std::size_t>(target_)];
  }
  bool answers() const {
    return std::ranges::none_of(setup_.troubles, [&](const Trouble& trouble) {
      return trouble.kind == Trouble::Kind::hangs && trouble.target == target_ && trouble.at(now_);
    });
  }

  const RunSetup& setup_;
  Target target_;
  double credit_, now_ = 0;
};

/// Serves at one rate, one after the other.
struct Line {
  double per_second = 0, now = 0;

  double give(double amount, double asked) {
    now = std::max(now, asked) + amount / per_second;
    return now;
  }
};

/// All that batches pass on their way, each in the batches' order.
class Way {
 public:
  explicit Way(const RunSetup& setup) : setup_(setup), network_{setup.storage.network} {
    for (std::size_t target = 0; target < setup.storage.targets.size(); ++target) {
      targets_.emplace_back(setup, static_cast<Target>(target));
      servers_[setup.storage.targets[target].server] = {setup.storage.flow};
    }
    opens_.per_second = setup.storage.opens_per_second;
  }

  /// When a batch is there, which is not asked for before. Batches come in their order.
  double bring(const Demand& batch, double asked) {
    double there = network_.give(batch.all, asked);
    for (const auto& [target, bytes] : batch.targets) {
      there = std::max(there, targets_[static_cast<std::size_t>(target)].give(bytes, asked));
    }
    for (const auto& [server, bytes] : batch.servers) {
      there = std::max(there, servers_[server].give(bytes, asked));
    }
    for (const std::uint32_t file : batch.files) {
      const bool is_new = opened_.insert(file).second;
      there = is_new ? std::max(there, opens_.give(1 / opening_share(), asked)) : there;
    }
    return there;
  }

 private:
  double opening_share() const {
    double share = 1;
    for (const Trouble& trouble : setup_.troubles) {
      share *=
          trouble.kind == Trouble::Kind::metadata && trouble.at(opens_.now) ? trouble.factor : 1;
    }
    return share;
  }

  const RunSetup& setup_;
  std::vector<TargetClock> targets_;
  std::map<int, Line> servers_;
  Line network_, opens_;
  std::set<std::uint32_t> opened_;
};

}  // namespace

double seconds_in_order(const RunSetup& setup) {
  Way way(setup);
  const auto budget = static_cast<double>(setup.scheduler.budget_bytes);
  std::vector<double> taken, ends;
  double before = 0, free_from = 0;
  std::size_t freed = 0;
  for (const auto& batch : setup.batches) {
    // What lies a whole budget before it has been taken, and made room.
    while (freed < taken.size() && ends[freed] <= before - budget) {
      free_from = taken[freed++];
    }
    Demand demand;
    add_demand(setup, batch, demand);
    const double there = way.bring(demand, free_from);
    taken.push_back(taken.empty() ? there : std::max(there, taken.back() + setup.compute_s));
    before += demand.all;
    ends.push_back(before);
  }
  return taken.back() + setup.compute_s;
}

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
