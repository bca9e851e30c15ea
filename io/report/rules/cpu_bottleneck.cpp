// CPUBottleneck: GPUs are idle while cores are full, most of the time.
#include <fmt/core.h>

#include "io/report/rule.hpp"

namespace sprat::io {
namespace {

RuleResult judge_cpu_bottleneck(std::span<const RankReport> run) {
  double seconds = 0, bottleneck = 0, cpu = 0;
  for (const RankReport& report : run) {
    for (const Interval& one : judged(report)) {
      seconds += one.seconds;
      cpu += one.seconds * cpu_share(one);
      bottleneck += computing_is_idle(one) && cpu_share(one) > full_cpu ? one.seconds : 0;
    }
  }
  if (seconds == 0) {
    return {RuleResult::Verdict::not_measured, "the run is too short"};
  }
  const double share = bottleneck / seconds;
  return {
      share > most_of_run ? RuleResult::Verdict::found : RuleResult::Verdict::fine,
      fmt::format("for {:.0f} % of {:.0f} s computing was idle while cores were more than "
                  "{:.0f} % busy ({:.0f} % on average){}",
                  100 * share, seconds, 100 * full_cpu, 100 * cpu / seconds,
                  measures_gpu(run) ? "" : "; GPUs not measured, idle is a long wait for samples")};
}

}  // namespace

extern const RuleKind cpu_bottleneck_rule;
const RuleKind cpu_bottleneck_rule = {"CPUBottleneck", "GPUs idle while cores are full",
                                      judge_cpu_bottleneck};

}  // namespace sprat::io
