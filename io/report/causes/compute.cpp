// Samples wait for whoever computes: all is well.
#include <fmt/core.h>

#include <algorithm>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

std::optional<Cause> find_compute(const ObservedWindow& window, const Past&, const StorageFacts&) {
  if (window.consumer_wait >= little_wait) {
    return std::nullopt;
  }
  // What is most in use grows with the rate until it is full.
  double used = window.occupancy();
  for (const ObservedStage& stage : window.stages) {
    used = std::max(used, stage.busy);
  }
  if (window.nic_mbps && window.link_mbps && *window.link_mbps > 0) {
    used = std::max(used, *window.nic_mbps / *window.link_mbps);
  }
  const std::string room = used > 0.01 && used < 1
                               ? fmt::format("; about {} samples/s could be given",
                                             figure(window.samples_per_second / used))
                               : std::string();
  return Cause{
      Limit::compute,
      fmt::format("compute-bound: storage is not the limit; {} samples/s, waits {:.1f} % of "
                  "the time{}",
                  figure(window.samples_per_second), 100 * window.consumer_wait, room),
      ""};
}

}  // namespace

extern const CauseKind compute_cause;
const CauseKind compute_cause = {Limit::compute, "compute", false, true, 3, find_compute};

}  // namespace sprat::io
