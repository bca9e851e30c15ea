// Reads come back with fewer bytes than the file has there, and the rest is asked for anew.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

// Some file systems cut a few reads at their own edges.
constexpr double usual_share = 0.05;

std::optional<Cause> find_short_reads(const ObservedWindow& window, const Past&,
                                      const StorageFacts&) {
  double reads = 0, cut = 0;
  const ObservedTarget* worst = nullptr;
  for (const ObservedTarget& target : window.targets) {
    reads += target.reads;
    cut += target.short_reads;
    worst = worst == nullptr || target.short_reads > worst->short_reads ? &target : worst;
  }
  if (reads == 0 || cut < usual_share * reads) {
    return std::nullopt;
  }
  return Cause{Limit::short_reads,
               fmt::format("{:.0f} % of reads come back short and are asked for again, most of "
                           "them of target {}",
                           100 * cut / reads, worst->target),
               "look at that server's log, or read in smaller requests"};
}

}  // namespace

extern const CauseKind short_reads_cause;
const CauseKind short_reads_cause = {Limit::short_reads, "short_reads", true, false, 3,
                                     find_short_reads};

}  // namespace sprat::io
