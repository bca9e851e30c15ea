// The file system gave more for a while, and now gives the base that was paid for.
#include <fmt/core.h>

#include <array>
#include <cmath>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

// Rates within this share of the table's count as it; the peak was so much above what is now.
constexpr double near_base = 0.15, burst_fall = 1.3;

std::optional<Cause> find_burst_spent(const ObservedWindow& window, const Past& past,
                                      const StorageFacts& facts) {
  const double now = window.file_system_mbps;
  // How much credit there was, and when it comes back, AWS does not say, so nothing is promised.
  if (!queues_are_full(window) || past.peak_mbps < burst_fall * now || now <= 0 || !facts.system) {
    return std::nullopt;
  }
  const FsxRates rates = fsx_rates(*facts.system);
  for (const double whole : {rates.disk, rates.memory}) {
    const double base = whole / facts.hosts;
    if (std::abs(now - base) > near_base * base) {
      continue;
    }
    const FsxSystem enough = fsx_for_rate(*facts.system->kind, past.peak_mbps * facts.hosts);
    return Cause{Limit::burst_spent,
                 fmt::format("burst credits spent: {} MB/s for {}, now {} = the base of {}{}",
                             figure(past.peak_mbps), time_figure(past.peak_seconds), figure(now),
                             fsx_text(*facts.system),
                             facts.hosts > 1 ? fmt::format(" over {} hosts", facts.hosts) : ""),
                 fmt::format("to hold {} MB/s, {} is needed; or keep more in client caches",
                             figure(past.peak_mbps * facts.hosts), fsx_text(enough))};
  }
  return std::nullopt;
}

}  // namespace

extern const CauseKind burst_spent_cause;
const CauseKind burst_spent_cause = {Limit::burst_spent, "burst_spent", true, true, 3,
                                     find_burst_spent};

}  // namespace sprat::io
