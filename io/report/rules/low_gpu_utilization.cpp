// LowGPUUtilization: GPUs are little used, or by fits and starts.
#include <fmt/core.h>

#include "io/report/rule.hpp"

namespace sprat::io {
namespace {

constexpr double well_used = 0.70, barely_used = 0.10;

RuleResult judge_low_gpu_utilization(std::span<const RankReport> run) {
  if (!measures_gpu(run)) {
    return {RuleResult::Verdict::not_measured, "no GPU, or no NVML that tells how busy it is"};
  }
  RuleResult result{RuleResult::Verdict::fine, ""};
  double least = 3;
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
    const bool low = p95 < well_used, unsteady = !low && p5 < barely_used;
    if (low || unsteady) {
      result.verdict = RuleResult::Verdict::found;
    }
    // The sentence is about the worst rank.
    const double rank_worth = low ? p95 : unsteady ? 1 : 1 + p5;
    if (rank_worth < least) {
      least = rank_worth;
      result.sentence = fmt::format("rank {}: p95 of its GPU's use is {:.0f} %, p5 {:.0f} %: {}",
                                    report.rank, 100 * p95, 100 * p5,
                                    low        ? "little used"
                                    : unsteady ? "used by fits and starts"
                                               : "well used");
    }
  }
  return result;
}

}  // namespace

extern const RuleKind low_gpu_utilization_rule;
const RuleKind low_gpu_utilization_rule = {"LowGPUUtilization", "GPUs little or unsteadily used",
                                           judge_low_gpu_utilization};

}  // namespace sprat::io
