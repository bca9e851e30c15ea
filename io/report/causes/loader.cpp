// Samples are waited for, and too little is asked of storage: the loader itself is the limit.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

constexpr double half_empty = 0.6;

std::optional<Cause> find_loader(const ObservedWindow& window, const Past&, const StorageFacts&) {
  if (window.in_flight_cap <= 0 || window.occupancy() >= half_empty) {
    return std::nullopt;
  }
  return Cause{Limit::loader,
               fmt::format("loader-bound: {} of {} requests are in flight while samples are waited "
                           "for {:.0f} % of the time",
                           figure(window.in_flight), figure(window.in_flight_cap),
                           100 * window.consumer_wait),
               "raise the depth of prefetching, or the threads that read"};
}

}  // namespace

extern const CauseKind loader_cause;
const CauseKind loader_cause = {Limit::loader, "loader", true, true, 3, find_loader};

}  // namespace sprat::io
