// The table of rules, and what they have in common.
#include "io/report/rule.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace sprat::io {

extern const RuleKind cpu_bottleneck_rule, io_bottleneck_rule, load_balancing_rule,
    low_gpu_utilization_rule, step_outlier_rule;

std::span<const RuleKind* const> rule_kinds() {
  static constexpr std::array table = {&cpu_bottleneck_rule, &io_bottleneck_rule,
                                       &load_balancing_rule, &low_gpu_utilization_rule,
                                       &step_outlier_rule};
  return table;
}

std::string_view name(RuleResult::Verdict verdict) noexcept {
  switch (verdict) {
    case RuleResult::Verdict::fine:
      return "ok";
    case RuleResult::Verdict::found:
      return "found";
    case RuleResult::Verdict::not_measured:
      return "not measured";
  }
  return "?";
}

std::span<const Interval> judged(const RankReport& report) {
  // Debugger skips points; seconds mean the same at any length of interval.
  const auto first = std::ranges::find_if(
      report.intervals, [](const Interval& one) { return one.begin_s >= patience_seconds; });
  return {first, report.intervals.end()};
}

bool computing_is_idle(const Interval& interval) {
  // Both thresholds are Debugger's; a wait stands in where no GPU tells.
  return interval.gpu_busy ? *interval.gpu_busy < idle_gpu : interval.consumer_wait > long_wait;
}

double cpu_share(const Interval& interval) {
  double busiest = 0;
  if (interval.cores && interval.cores->budget > 0) {
    const CoresInterval& cores = *interval.cores;
    busiest = (cores.decode_seconds + cores.read_seconds + cores.reduce_seconds) /
              (interval.seconds * cores.budget);
  }
  // One full stage holds up all others, however idle the cores are on average.
  for (const StageInterval& stage : interval.stages) {
    const double all = interval.seconds * stage.threads;
    busiest = std::max(busiest, all > 0 ? stage.busy_seconds / all : 0);
  }
  return busiest;
}

bool measures_gpu(std::span<const RankReport> run) {
  return std::ranges::any_of(run, [](const RankReport& report) {
    return std::ranges::any_of(judged(report),
                               [](const Interval& one) { return one.gpu_busy.has_value(); });
  });
}

double quantile(std::vector<double> values, double share) {
  const double last = static_cast<double>(values.size() - 1);
  const auto place = values.begin() + std::lround(share * last);
  std::ranges::nth_element(values, place);
  return *place;
}

}  // namespace sprat::io
