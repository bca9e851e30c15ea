// IOBottleneck: GPUs are idle while samples are waited for and cores are not full, most of the
// time.
#include <fmt/core.h>

#include "io/report/rule.hpp"

namespace sprat::io {
namespace {

RuleResult judge_io_bottleneck(std::span<const RankReport> run) {
  double seconds = 0, bottleneck = 0, wait = 0, bytes = 0;
  for (const RankReport& report : run) {
    for (const Interval& one : judged(report)) {
      seconds += one.seconds;
      wait += one.seconds * one.consumer_wait;
      bytes += static_cast<double>(one.bytes.file_system);
      // A loader that waits for its own cores waits for no storage.
      const bool storage = one.consumer_wait > long_wait && cpu_share(one) <= full_cpu;
      bottleneck += computing_is_idle(one) && storage ? one.seconds : 0;
    }
  }
  if (seconds == 0) {
    return {RuleResult::Verdict::not_measured, "the run is too short"};
  }
  const double share = bottleneck / seconds;
  return {
      share > most_of_run ? RuleResult::Verdict::found : RuleResult::Verdict::fine,
      fmt::format("for {:.0f} % of {:.0f} s computing was idle while samples were waited for; "
                  "waits took {:.0f} % of the time, at {:.1f} MB/s from storage{}",
                  100 * share, seconds, 100 * wait / seconds, bytes / seconds / 1e6,
                  measures_gpu(run) ? "" : "; GPUs not measured, idle is a long wait for samples")};
}

}  // namespace

extern const RuleKind io_bottleneck_rule;
const RuleKind io_bottleneck_rule = {"IOBottleneck", "GPUs idle while samples are waited for",
                                     judge_io_bottleneck};

}  // namespace sprat::io
