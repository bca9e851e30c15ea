// Samples are waited for, and nothing that is observed is full.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

std::optional<Cause> find_unknown(const ObservedWindow& window, const Past&, const StorageFacts&) {
  return Cause{Limit::unknown,
               fmt::format("samples are waited for {:.0f} % of the time, and nothing that is "
                           "measured is full: {} of {} requests in flight, {} MB/s from storage",
                           100 * window.consumer_wait, figure(window.in_flight),
                           figure(window.in_flight_cap), figure(window.file_system_mbps)),
               "compare with sprat io bench on the same files"};
}

}  // namespace

extern const CauseKind unknown_cause;
const CauseKind unknown_cause = {Limit::unknown, "unknown", true, true, 3, find_unknown};

}  // namespace sprat::io
