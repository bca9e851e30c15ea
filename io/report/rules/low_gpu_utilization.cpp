// LowGPUUtilization: GPUs are little used, or by fits and starts.
#include <fmt/core.h>

#include "io/report/rule.hpp"

namespace sprat::io {
namespace {

// Debugger's thresholds of the 95th and of the 5th percentile.
constexpr double well_used = 0.70, barely_used = 0.10;

// The sentence is about the rank of the least worth: one that is little used before one that is
// used by fits and starts, that one before one that is well used.
double worth(double p95, double p5) {
  const bool little = p95 < well_used, unsteady = p5 < barely_used;
  return little ? p95 : unsteady ? 1 : 1 + p5;
}
constexpr double above_all_worth = 3;

std::string_view words_of(double p95, double p5) {
  return p95 < well_used    ? "little used"
         : p5 < barely_used ? "used by fits and starts"
                            : "well used";
}

RuleResult judge_low_gpu_utilization(std::span<const RankReport> run) {
  if (!measures_gpu(run)) {
    return {RuleResult::Verdict::not_measured, "no GPU, or no NVML that tells how busy it is"};
  }
  RuleResult result{RuleResult::Verdict::fine, ""};
  double least = above_all_worth;
  for (const RankReport& report : run) {
    std::vector<double> busy;
    for (const Interval& one : judged(report)) {
      if (one.gpu_busy) {
        busy.push_back(*one.gpu_busy);
      }
    }
    if (busy.empty()) {
      continue;
    }
    const double p95 = quantile(busy, 0.95), p5 = quantile(busy, 0.05);
    if (p95 < well_used || p5 < barely_used) {
      result.verdict = RuleResult::Verdict::found;
    }
    if (worth(p95, p5) < least) {
      least = worth(p95, p5);
      result.sentence = fmt::format("rank {}: p95 of its GPU's use is {:.0f} %, p5 {:.0f} %: {}",
                                    report.rank, 100 * p95, 100 * p5, words_of(p95, p5));
    }
  }
  return result;
}

}  // namespace

extern const RuleKind low_gpu_utilization_rule;
const RuleKind low_gpu_utilization_rule = {"LowGPUUtilization", "GPUs little or unsteadily used",
                                           judge_low_gpu_utilization};

}  // namespace sprat::io
