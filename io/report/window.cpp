#include "io/report/window.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

namespace sprat::io {
namespace {

constexpr double megabyte_of_report = 1e6;

// Percentiles are weighted by reads: a second with one slow read says little about a target.
void add_target(ObservedTarget& sum, const TargetInterval& target, double seconds) {
  const auto reads = static_cast<double>(target.reads);
  sum.target = target.target;
  sum.mbps += static_cast<double>(target.bytes) / megabyte_of_report;
  sum.reads += reads;
  sum.errors += static_cast<double>(target.errors);
  sum.short_reads += static_cast<double>(target.short_reads);
  sum.p50_s += reads * target.p50_s;
  sum.p95_s += reads * target.p95_s;
  sum.in_flight += seconds * target.in_flight;
  sum.in_flight_cap += seconds * target.in_flight_cap;
}

void add_cores(std::optional<CoresInterval>& sum, const CoresInterval& cores, double seconds) {
  if (!sum) {
    sum.emplace();
  }
  sum->budget += seconds * cores.budget;
  sum->decode_seconds += cores.decode_seconds;
  sum->read_seconds += cores.read_seconds;
  sum->reduce_seconds += cores.reduce_seconds;
  sum->reduced_bytes += cores.reduced_bytes;
  sum->reduced_in_seconds += cores.reduced_in_seconds;
  if (cores.slowdown) {
    sum->slowdown = cores.slowdown;  // the latest one has seen the most
  }
}

/// Sums that become means when all intervals are in.
class WindowSum {
 public:
  void add(const Interval& one) {
    const double seconds = one.seconds;
    sum_.seconds += seconds;
    sum_.samples_per_second += static_cast<double>(one.samples);
    const auto storage = static_cast<double>(one.bytes.file_system) / megabyte_of_report;
    sum_.file_system_mbps += storage;
    sum_.delivered_mbps += storage + static_cast<double>(one.bytes.page_cache +
                                                         one.bytes.host_cache + one.bytes.peers) /
                                         megabyte_of_report;
    sum_.consumer_wait += seconds * one.consumer_wait;
    sum_.budget_wait += seconds * one.budget_wait;
    sum_.budget_bytes += seconds * static_cast<double>(one.budget_bytes);
    sum_.budget_share += seconds * static_cast<double>(one.budget_used_bytes);
    sum_.in_flight += seconds * one.in_flight;
    sum_.in_flight_cap += seconds * one.in_flight_cap;
    const auto opens = static_cast<double>(one.opens.files);
    sum_.opens_per_second += opens;
    sum_.open_p95_s += opens * one.opens.p95_s;
    sum_.reads_blocked += seconds * one.released.reads_blocked;
    sum_.restored_mbps += static_cast<double>(one.released.restored_bytes) / megabyte_of_report;
    sum_.released_left_bytes = static_cast<double>(one.released.left_bytes);
    add_optional(one);
    for (const TargetInterval& target : one.targets) {
      add_target(targets_[target.target], target, seconds);
    }
    for (const StageInterval& stage : one.stages) {
      add_stage(stage, seconds);
    }
  }

  ObservedWindow mean() {
    const double seconds = std::max(sum_.seconds, 1e-9);  // an empty window divides by it, too
    sum_.open_p95_s /= std::max(sum_.opens_per_second, 1.0);
    sum_.budget_share /= std::max(sum_.budget_bytes, 1.0);
    for (double* value :
         {&sum_.samples_per_second, &sum_.file_system_mbps, &sum_.delivered_mbps,
          &sum_.consumer_wait, &sum_.budget_wait, &sum_.budget_bytes, &sum_.in_flight,
          &sum_.in_flight_cap, &sum_.opens_per_second, &sum_.reads_blocked, &sum_.restored_mbps}) {
      *value /= seconds;
    }
    finish_optional();
    for (auto& [number, target] : targets_) {
      target.p50_s /= std::max(target.reads, 1.0);
      target.p95_s /= std::max(target.reads, 1.0);
      target.mbps /= seconds;
      target.in_flight /= seconds;
      target.in_flight_cap /= seconds;
      sum_.targets.push_back(target);
    }
    for (ObservedStage& stage : sum_.stages) {
      stage.busy /= std::max(stage.threads, 1e-9);  // thread-seconds by now
      stage.threads /= seconds;
    }
    return std::move(sum_);
  }

 private:
  /// What was not measured in one interval is left out of the mean, not taken for 0.
  void add_optional(const Interval& one) {
    if (one.nic_bytes) {
      sum_.nic_mbps =
          sum_.nic_mbps.value_or(0) + static_cast<double>(*one.nic_bytes) / megabyte_of_report;
      nic_seconds_ += one.seconds;
    }
    // A link's rate does not change, so the last word counts.
    if (one.link_bytes_per_second) {
      sum_.link_mbps = *one.link_bytes_per_second / megabyte_of_report;
    }
    if (one.cores) {
      add_cores(sum_.cores, *one.cores, one.seconds);
      core_seconds_ += one.seconds;
    }
  }

  void finish_optional() {
    if (sum_.nic_mbps) {
      *sum_.nic_mbps /= std::max(nic_seconds_, 1e-9);
    }
    if (sum_.cores) {
      sum_.cores->budget /= std::max(core_seconds_, 1e-9);
    }
  }

  void add_stage(const StageInterval& stage, double seconds) {
    // Few stages, and their order is the pipeline's: a list that is searched keeps it.
    auto place = std::ranges::find(sum_.stages, stage.name, &ObservedStage::name);
    if (place == sum_.stages.end()) {
      sum_.stages.push_back({.name = stage.name});
      place = sum_.stages.end() - 1;
    }
    place->threads += seconds * stage.threads;
    place->busy += stage.busy_seconds;
  }

  ObservedWindow sum_;
  std::map<Target, ObservedTarget> targets_;
  double nic_seconds_ = 0, core_seconds_ = 0;
};

bool is_full(const ObservedTarget& target) { return target.occupancy() >= full_queue; }

}  // namespace

ObservedWindow observe(std::span<const Interval> intervals) {
  WindowSum sum;
  for (const Interval& interval : intervals) {
    sum.add(interval);
  }
  return sum.mean();
}

bool queues_are_full(const ObservedWindow& window) {
  if (window.occupancy() >= full_queue) {
    return true;
  }
  // Caps of targets that answer quickly grow ahead of what is asked for, and hide in the sum those
  // that are full.
  const auto full = std::ranges::count_if(window.targets, is_full);
  return full > 0 && 2 * full >= std::ssize(window.targets);
}

bool link_is_full(const ObservedWindow& window) {
  constexpr double full_link = 0.9;  // headers and pauses take the rest
  return window.nic_mbps && window.link_mbps && *window.nic_mbps >= full_link * *window.link_mbps;
}

namespace {

/// By what each does: twice as slow as all are on average while most others wait for it, or twice
/// as much to do. Where most have full queues each gives what it can, and who is asked for more at
/// a time only answers later for that.
std::vector<ObservedTarget> hot_by_mean(const std::vector<ObservedTarget>& busy) {
  constexpr double beyond_mean = 2, few = 0.2;
  double time = 0, rate = 0;
  for (const ObservedTarget& target : busy) {
    time += target.p50_s;
    rate += target.mbps;
  }
  const auto count = static_cast<double>(busy.size());
  const bool most_full = 2 * std::ranges::count_if(busy, is_full) > std::ssize(busy);
  std::vector<ObservedTarget> hot;
  std::ranges::copy_if(busy, std::back_inserter(hot), [&](const ObservedTarget& target) {
    return (!most_full && target.p50_s > beyond_mean * time / count) ||
           target.mbps > beyond_mean * rate / count;
  });
  const double most = std::max(1.0, std::floor(few * count));
  return static_cast<double>(hot.size()) <= most ? hot : std::vector<ObservedTarget>{};
}

/// By who waits for whom: a scheduler that shortens the queue of a slow target keeps its times near
/// the others', but that queue stays full while the others run empty.
std::vector<ObservedTarget> hot_by_queue(const std::vector<ObservedTarget>& busy) {
  constexpr double idle_queue = 0.5;
  double others = 0;
  std::vector<ObservedTarget> hot;
  for (const ObservedTarget& target : busy) {
    if (is_full(target)) {
      hot.push_back(target);
    } else {
      others += target.occupancy();
    }
  }
  const std::size_t rest = busy.size() - hot.size();
  const bool few = !hot.empty() && hot.size() <= rest;
  return few && others < idle_queue * static_cast<double>(rest) ? hot
                                                                : std::vector<ObservedTarget>{};
}

}  // namespace

std::vector<ObservedTarget> hot_targets(const ObservedWindow& window) {
  std::vector<ObservedTarget> busy;
  std::ranges::copy_if(window.targets, std::back_inserter(busy),
                       [](const ObservedTarget& target) { return target.reads > 0; });
  constexpr std::size_t fewest = 3;  // of two, neither is the exception
  if (busy.size() < fewest) {
    return {};
  }
  std::vector<ObservedTarget> hot = hot_by_mean(busy);
  return hot.empty() ? hot_by_queue(busy) : hot;
}

}  // namespace sprat::io
