// Queues of all targets are full, and storage gives no more.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

constexpr double plateau_fall = 1.3;

std::optional<Cause> find_file_system(const ObservedWindow& window, const Past& past,
                                      const StorageFacts& facts) {
  if (!queues_are_full(window)) {
    return std::nullopt;
  }
  const double now = window.file_system_mbps;
  const bool fell = past.peak_mbps >= plateau_fall * now;
  const std::string before =
      fell ? fmt::format("; it gave {} MB/s for {} before", figure(past.peak_mbps),
                         time_figure(past.peak_seconds))
           : std::string();
  if (!facts.system) {
    return Cause{
        Limit::file_system,
        fmt::format("file system throughput limit reached: plateau at {} MB/s with {} of {} "
                    "requests in flight{}",
                    figure(now), figure(window.in_flight), figure(window.in_flight_cap), before),
        "a larger file system, or more of the data in client caches; if it is FSx, "
        "--fsx=DEPLOYMENT:MBPS_PER_TIB:GIB compares with AWS's table"};
  }
  const FsxRates rates = fsx_rates(*facts.system);
  return Cause{
      Limit::file_system,
      fmt::format("file system throughput limit reached: {} MB/s, where {} has a base of {} "
                  "and a burst of {} MB/s{}{}",
                  figure(now), fsx_text(*facts.system), figure(rates.disk),
                  figure(rates.disk_burst),
                  facts.hosts > 1 ? fmt::format(" for {} hosts", facts.hosts) : "", before),
      "sprat plan storage says which size would do; or keep more in client caches"};
}

}  // namespace

extern const CauseKind file_system_cause;
const CauseKind file_system_cause = {Limit::file_system, "file_system", true, true, 3,
                                     find_file_system};

}  // namespace sprat::io
