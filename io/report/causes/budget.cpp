// The loader may not hold more bytes: no read starts, though targets would take some.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

constexpr double often = 0.2, nearly_all = 0.9;

std::optional<Cause> find_budget(const ObservedWindow& window, const Past&, const StorageFacts&) {
  if (window.budget_wait < often || window.budget_share < nearly_all || queues_are_full(window)) {
    return std::nullopt;
  }
  constexpr double mebi = 1024 * 1024;
  // Queues that are full take as many bytes more as they have requests more.
  const double more = std::min(8.0, 1 / std::max(window.occupancy(), 0.1));
  return Cause{
      Limit::budget,
      fmt::format("memory-bound: for {:.0f} % of the time no read starts, since {:.0f} % of "
                  "the budget of {} MiB are taken, while {} of {} requests are in flight",
                  100 * window.budget_wait, 100 * window.budget_share,
                  figure(window.budget_bytes / mebi), figure(window.in_flight),
                  figure(window.in_flight_cap)),
      fmt::format("raise the budget to {} MiB",
                  figure(std::ceil(more * window.budget_bytes / mebi)))};
}

}  // namespace

extern const CauseKind budget_cause;
const CauseKind budget_cause = {Limit::budget, "budget", true, false, 3, find_budget};

}  // namespace sprat::io
