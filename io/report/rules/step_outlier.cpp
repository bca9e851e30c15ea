// StepOutlier: some steps of training take far longer than the others.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "io/report/rule.hpp"

namespace sprat::io {
namespace {

constexpr double deviations = 3;
constexpr std::size_t outliers_to_ignore = 10, fewest_steps = 30;

/// The steps of one rank, and where the slowest one was.
struct RankSteps {
  std::vector<double> seconds;
  double slowest = 0, slowest_at_s = 0;
};

RankSteps steps_of(const RankReport& report) {
  RankSteps steps;
  for (const Interval& one : judged(report)) {
    for (const double step : one.step_seconds) {
      steps.seconds.push_back(step);
      if (step > steps.slowest) {
        steps.slowest = step;
        steps.slowest_at_s = one.begin_s;
      }
    }
  }
  return steps;
}

RuleResult judge_step_outlier(std::span<const RankReport> run) {
  RuleResult result{RuleResult::Verdict::not_measured,
                    fmt::format("fewer than {} steps were told", fewest_steps)};
  std::size_t most = 0;
  for (const RankReport& report : run) {
    const RankSteps steps = steps_of(report);
    const auto count = static_cast<double>(steps.seconds.size());
    if (steps.seconds.size() < fewest_steps) {
      continue;
    }
    double sum = 0, squares = 0;
    for (const double step : steps.seconds) {
      sum += step;
      squares += step * step;
    }
    const double mean = sum / count;
    const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
    const auto outliers = static_cast<std::size_t>(std::ranges::count_if(
        steps.seconds, [&](double step) { return step > mean + deviations * deviation; }));
    // Debugger lets ten pass: evaluations and checkpoints are steps, too.
    const bool found = outliers > outliers_to_ignore;
    if (result.verdict == RuleResult::Verdict::not_measured || outliers > most) {
      most = outliers;
      result = {
          found ? RuleResult::Verdict::found : RuleResult::Verdict::fine,
          fmt::format("rank {}: {} of {} steps take more than {:.3g} s, {:.0f} deviations above "
                      "the mean of {:.3g} s; the slowest {:.3g} s, {:.0f} s after the start",
                      report.rank, outliers, steps.seconds.size(), mean + deviations * deviation,
                      deviations, mean, steps.slowest, steps.slowest_at_s)};
    }
  }
  return result;
}

}  // namespace

extern const RuleKind step_outlier_rule;
const RuleKind step_outlier_rule = {"StepOutlier", "steps that take far longer than the others",
                                    judge_step_outlier};

}  // namespace sprat::io
