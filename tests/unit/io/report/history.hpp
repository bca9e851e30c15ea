// Histories of loaders that were never run: healthy ones, and ones with a cause from some second
// on. Sizes, times and noise are drawn from a seed. The model is of storage and hosts, and knows
// nothing of the thresholds of the diagnosis.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "io/capacity/fsx.hpp"
#include "io/report/cause.hpp"

namespace sprat::io {

class HistoryMaker {
 public:
  explicit HistoryMaker(std::uint64_t seed) : random_(seed) {
    targets_ = whole(5, 32);
    cap_ = whole(2, 16);
    latency_s_ = log_between(0.5e-3, 50e-3);
    noise_ = between(0.02, 0.10);
    demand_mbps_ = log_between(50, 5000);
    use_ = between(0.2, 0.6);
    sample_bytes_ = log_between(1e3, 1e8);
    budget_bytes_ = log_between(1e8, 1e10);
    threads_ = whole(1, 16);
    cores_ = whole(4, 96);
    measures_nic_ = chance(0.7);
    measures_cores_ = chance(0.7);
    reduce_s_per_byte_ = log_between(1e-10, 1e-9);
    facts_.mean_file_bytes = log_between(1e4, 1e9);
  }

  double between(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random_);
  }
  double log_between(double least, double most) {
    return std::exp(between(std::log(least), std::log(most)));
  }
  int whole(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  bool chance(double share) { return between(0, 1) < share; }
  /// About 1.
  double noise() { return std::exp(noise_ * std::normal_distribution<double>()(random_)); }

  /// A second in which computing is the limit, with what happens on every machine: a pause of the
  /// computing, a read that fails once, a slow open.
  Interval healthy(double begin_s) {
    Interval one{.begin_s = begin_s};
    set_rate(one, demand_mbps_ * noise(), std::min(0.7, use_ * noise()));
    one.consumer_wait = chance(0.03) ? between(0, 0.08) : between(0, 0.01);
    one.budget_bytes = static_cast<std::uint64_t>(budget_bytes_);
    one.budget_used_bytes = static_cast<std::uint64_t>(budget_bytes_ * between(0.5, 1.0));
    // Buffers that are full because computing is slow are a sign of health.
    one.budget_wait = between(0, 0.9);
    one.stages = {{"decode", threads_, threads_ * std::min(0.75, between(0.2, 0.7))}};
    one.opens = {.files = static_cast<std::uint64_t>(whole(0, 3)),
                 .p95_s = chance(0.05) ? 30e-3 : log_between(0.2e-3, 3e-3)};
    if (chance(0.01)) {
      one.targets[0].errors = 1;
    }
    if (measures_nic_) {
      one.nic_bytes = static_cast<std::uint64_t>(1.02 * rate_of(one) * 1e6);
      one.link_bytes_per_second = demand_mbps_ * 1e6 * 2;
    }
    if (measures_cores_) {
      set_cores(one, between(0.4, 0.7), 1);
    }
    return one;
  }

  /// Storage gives `mbps`, with queues so full.
  void set_rate(Interval& one, double mbps, double occupancy, double latency_factor = 1) {
    one.targets.clear();
    one.in_flight_cap = targets_ * cap_;
    one.in_flight = occupancy * one.in_flight_cap;
    one.bytes.file_system = static_cast<std::uint64_t>(mbps * 1e6);
    one.samples = static_cast<std::uint64_t>(mbps * 1e6 / sample_bytes_) + 1;
    for (int target = 0; target < targets_; ++target) {
      const double p50 = latency_s_ * latency_factor * noise();
      const auto bytes = static_cast<std::uint64_t>(mbps * 1e6 / targets_ * noise());
      one.targets.push_back({.target = target,
                             .bytes = bytes,
                             .reads = bytes / (1 << 20) + 1,
                             .p50_s = p50,
                             .p95_s = p50 * between(1.5, 3),
                             .p99_s = p50 * between(3, 6),
                             .in_flight = std::min(1.0, occupancy * noise()) * cap_,
                             .in_flight_cap = static_cast<double>(cap_)});
    }
  }
  /// Cores are taken to a share of the budget, and reductions take `factor` times as long.
  void set_cores(Interval& one, double share, double factor) {
    const double reduce = 0.2 * cores_ * share, decode = 0.6 * cores_ * share;
    const double bytes = 1e9 * noise();
    one.cores = CoresInterval{.budget = static_cast<double>(cores_),
                              .decode_seconds = decode,
                              .read_seconds = cores_ * share - decode - reduce,
                              .reduce_seconds = reduce,
                              .reduced_bytes = static_cast<std::uint64_t>(bytes),
                              .reduced_in_seconds = bytes * reduce_s_per_byte_ * factor * noise()};
  }
  static double rate_of(const Interval& one) {
    return static_cast<double>(one.bytes.file_system) / 1e6;
  }

  int targets() const { return targets_; }
  int threads() const { return threads_; }
  double demand_mbps() const { return demand_mbps_; }
  void set_demand(double mbps) { demand_mbps_ = mbps; }
  void measure_cores() { measures_cores_ = true; }
  StorageFacts& facts() { return facts_; }

 private:
  std::mt19937_64 random_;
  int targets_ = 0, cap_ = 0, threads_ = 0, cores_ = 0;
  double latency_s_ = 0, noise_ = 0, demand_mbps_ = 0, use_ = 0, sample_bytes_ = 0,
         budget_bytes_ = 0, reduce_s_per_byte_ = 0;
  bool measures_nic_ = false, measures_cores_ = false;
  StorageFacts facts_;
};

/// A way in which something becomes the limit.
struct Scenario {
  Limit limit;
  /// Draws how severe it is, and gives what it does to a healthy second.
  std::function<void(Interval&)> (*begin)(HistoryMaker& maker);
};

/// Samples come at a share of what computing would take.
inline void starve(HistoryMaker& maker, Interval& one, double share, double occupancy,
                   double latency_factor = 1) {
  maker.set_rate(one, maker.demand_mbps() * share * maker.noise(), occupancy, latency_factor);
  one.consumer_wait = std::clamp((1 - share) * maker.noise(), 0.0, 1.0);
  one.budget_wait = maker.between(0, 0.02);
  one.budget_used_bytes /= 2;
  one.nic_bytes = one.nic_bytes ? static_cast<std::uint64_t>(1.02e6 * HistoryMaker::rate_of(one))
                                : one.nic_bytes;
}

using SecondChange = std::function<void(Interval&)>;

inline SecondChange begin_failover(HistoryMaker& maker) {
  const int hit = maker.whole(0, maker.targets() - 1);
  const double share = maker.between(0.4, 0.9);
  const bool silent = maker.chance(0.3);
  return [&maker, hit, share, silent](Interval& one) {
    starve(maker, one, share, maker.between(0.2, 0.6));
    TargetInterval& target = one.targets[static_cast<std::size_t>(hit)];
    if (silent) {
      target = {.target = target.target,
                .in_flight = target.in_flight_cap,
                .in_flight_cap = target.in_flight_cap};
      return;
    }
    target.errors = static_cast<std::uint64_t>(maker.whole(1, 12));
    target.reads = target.errors;
    target.bytes = 0;
    target.p50_s = target.p95_s = target.p99_s = maker.between(0.5, 3);
  };
}

inline SecondChange begin_released(HistoryMaker& maker) {
  const double share = maker.between(0.1, 0.8), blocked = maker.log_between(1, 50);
  const double mbps = maker.log_between(50, 3000);
  return [&maker, share, blocked, mbps](Interval& one) {
    starve(maker, one, share, maker.between(0.1, 0.5));
    one.released = {.reads_blocked = blocked * maker.noise(),
                    .restored_bytes = static_cast<std::uint64_t>(mbps * 1e6 * maker.noise()),
                    .left_bytes = static_cast<std::uint64_t>(1e12)};
  };
}

inline SecondChange begin_reductions(HistoryMaker& maker) {
  maker.measure_cores();
  const double factor = maker.between(1.25, 2.5), wait = maker.between(0, 0.3);
  return [&maker, factor, wait](Interval& one) {
    maker.set_cores(one, maker.between(0.97, 1.0), factor);
    one.consumer_wait = std::max(one.consumer_wait, wait * maker.noise());
    one.in_flight = 0.7 * one.in_flight_cap;
  };
}

inline SecondChange begin_short_reads(HistoryMaker& maker) {
  const double share = maker.between(0.3, 0.9), cut = maker.between(0.1, 0.7);
  return [&maker, share, cut](Interval& one) {
    starve(maker, one, share, maker.between(0.65, 0.75));
    for (TargetInterval& target : one.targets) {
      target.short_reads =
          static_cast<std::uint64_t>(std::llround(cut * static_cast<double>(target.reads)));
    }
  };
}

inline SecondChange begin_metadata(HistoryMaker& maker) {
  const double share = maker.between(0.1, 0.8), opens = maker.log_between(200, 20000);
  const double p95 = maker.log_between(8e-3, 200e-3);
  return [&maker, share, opens, p95](Interval& one) {
    starve(maker, one, share, maker.between(0.05, 0.4));
    one.opens = {.files = static_cast<std::uint64_t>(opens * maker.noise()),
                 .p95_s = p95 * maker.noise()};
  };
}

inline SecondChange begin_hot_target(HistoryMaker& maker) {
  const auto hit = static_cast<std::size_t>(maker.whole(0, maker.targets() - 1));
  // Where the scheduler shortens its queue, its times stay near the others', who run empty.
  const bool shortened = maker.chance(0.4);
  const double share = maker.between(0.2, 0.8);
  const double slower = shortened ? maker.between(1, 2.5) : maker.log_between(4, 20);
  return [&maker, hit, share, slower, shortened](Interval& one) {
    starve(maker, one, share, shortened ? maker.between(0.05, 0.35) : maker.between(0.2, 0.6));
    TargetInterval& target = one.targets[hit];
    target.p50_s *= slower;
    target.p95_s *= slower;
    target.p99_s *= slower;
    target.in_flight = 0.97 * target.in_flight_cap;
  };
}

inline SecondChange begin_network(HistoryMaker& maker) {
  const double share = maker.between(0.2, 0.9), slower = maker.between(1.5, 4);
  return [&maker, share, slower](Interval& one) {
    starve(maker, one, share, maker.between(0.85, 0.98), slower);
    const double link = maker.demand_mbps() * share * 1e6;
    one.link_bytes_per_second = link;
    one.nic_bytes = static_cast<std::uint64_t>(link * maker.between(0.93, 0.99));
  };
}

inline SecondChange begin_decode(HistoryMaker& maker) {
  const double share = maker.between(0.2, 0.9);
  return [&maker, share](Interval& one) {
    starve(maker, one, share, maker.between(0.1, 0.5));
    one.stages = {{"read", 2, 0.3},
                  {"decode", maker.threads(), maker.threads() * maker.between(0.92, 1.0)}};
  };
}

inline SecondChange begin_budget(HistoryMaker& maker) {
  const double share = maker.between(0.2, 0.9), held = maker.between(0.35, 0.95);
  return [&maker, share, held](Interval& one) {
    starve(maker, one, share, maker.between(0.1, 0.65));
    one.budget_wait = std::min(1.0, held * maker.noise());
    one.budget_used_bytes = static_cast<std::uint64_t>(maker.between(0.94, 1.0) *
                                                       static_cast<double>(one.budget_bytes));
  };
}

inline SecondChange begin_burst_spent(HistoryMaker& maker) {
  static constexpr const char* systems[] = {"PERSISTENT_2:125:4800", "PERSISTENT_2:250:12000",
                                            "PERSISTENT_1:50:4800", "PERSISTENT_1:100:9600"};
  maker.facts().system = parse_fsx(systems[maker.whole(0, 3)]);
  maker.facts().hosts = maker.whole(1, 8);
  const double base = fsx_rates(*maker.facts().system).disk / maker.facts().hosts;
  const double above = maker.between(1.4, 1.95);
  maker.set_demand(base * above);
  const double now = maker.between(0.92, 1.08), slower = maker.between(1.4, 3);
  return [&maker, above, now, slower](Interval& one) {
    starve(maker, one, now / above, maker.between(0.86, 0.98), slower);
  };
}

inline SecondChange begin_file_system(HistoryMaker& maker) {
  // Other clients take a part of it, or demand has grown: either way no known base is met.
  const double share = maker.between(0.2, 0.9), slower = maker.between(1.4, 4);
  return [&maker, share, slower](Interval& one) {
    starve(maker, one, share, maker.between(0.86, 0.98), slower);
  };
}

inline SecondChange begin_loader(HistoryMaker& maker) {
  const double share = maker.between(0.2, 0.9), occupancy = maker.between(0.05, 0.45);
  return [&maker, share, occupancy](Interval& one) { starve(maker, one, share, occupancy); };
}

/// Two causes in one second: what each leaves of the rates is the less, and all marks stay.
inline void merge_marks(Interval& one, const Interval& other) {
  one.consumer_wait = std::max(one.consumer_wait, other.consumer_wait);
  one.bytes.file_system = std::min(one.bytes.file_system, other.bytes.file_system);
  one.opens = other.opens.files > one.opens.files ? other.opens : one.opens;
  one.released =
      other.released.reads_blocked > one.released.reads_blocked ? other.released : one.released;
  one.stages = other.stages.size() > one.stages.size() ? other.stages : one.stages;
  if (other.cores && (!one.cores || other.cores->decode_seconds > one.cores->decode_seconds)) {
    one.cores = other.cores;
  }
  for (std::size_t target = 0; target < one.targets.size(); ++target) {
    const bool silent = other.targets[target].reads == 0;
    if (silent || other.targets[target].errors > one.targets[target].errors) {
      one.targets[target] = other.targets[target];
    }
  }
}

inline const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {Limit::failover, begin_failover},       {Limit::released, begin_released},
      {Limit::reductions, begin_reductions},   {Limit::short_reads, begin_short_reads},
      {Limit::metadata, begin_metadata},       {Limit::hot_target, begin_hot_target},
      {Limit::network, begin_network},         {Limit::decode, begin_decode},
      {Limit::budget, begin_budget},           {Limit::burst_spent, begin_burst_spent},
      {Limit::file_system, begin_file_system}, {Limit::loader, begin_loader}};
  return all;
}

}  // namespace sprat::io
