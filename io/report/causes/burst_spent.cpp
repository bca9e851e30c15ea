// The file system gave more for a while, and now gives the base that was paid for.
#include <fmt/core.h>

#include <algorithm>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

/// Credit is a server's, and the first one to spend it holds up all: batches are taken in order and
/// want as much of each target, so the others cannot give more than their share of the base either,
/// though their queues are short.
bool some_queue_is_full(const ObservedWindow& window) {
  return queues_are_full(window) ||
         std::ranges::any_of(window.targets, [](const ObservedTarget& target) {
           return target.occupancy() >= full_queue;
         });
}

std::optional<Cause> find_burst_spent(const ObservedWindow& window, const Past& past,
                                      const StorageFacts& facts) {
  // How much credit there was, and when it comes back, AWS does not say, so nothing is promised.
  if (!base_after_burst(window, past, facts) || !some_queue_is_full(window)) {
    return std::nullopt;
  }
  const FsxSystem enough = fsx_for_rate(*facts.system->kind, past.peak_mbps * facts.hosts);
  return Cause{Limit::burst_spent,
               fmt::format("burst credits spent: {} MB/s for {}, now {} = the base of {}{}",
                           figure(past.peak_mbps), time_figure(past.peak_seconds),
                           figure(window.file_system_mbps), fsx_text(*facts.system),
                           facts.hosts > 1 ? fmt::format(" over {} hosts", facts.hosts) : ""),
               fmt::format("to hold {} MB/s, {} is needed; or keep more in client caches",
                           figure(past.peak_mbps * facts.hosts), fsx_text(enough))};
}

}  // namespace

extern const CauseKind burst_spent_cause;
const CauseKind burst_spent_cause = {Limit::burst_spent, "burst_spent", true, true, 3,
                                     find_burst_spent};

}  // namespace sprat::io
