// A server fails over or throws this client out: reads of one target fail, or are not answered,
// while others go on.
#include <fmt/core.h>

#include <algorithm>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

// A single failed read may be anything.
constexpr double fewest_errors = 2;
// Of all targets; where more fail, the network or this host is to blame, and the sentence says so.
constexpr double most_targets = 0.5;

/// A target whose reads wait and none of which ended in the whole window; null if there is none, or
/// if no target answers.
const ObservedTarget* silent_target(const ObservedWindow& window) {
  const ObservedTarget* silent = nullptr;
  double ended = 0;
  for (const ObservedTarget& target : window.targets) {
    ended += target.reads;
    // Half a request on average: one that began at the window's end says nothing.
    if (target.reads == 0 && target.in_flight >= 0.5 &&
        (silent == nullptr || target.in_flight > silent->in_flight)) {
      silent = &target;
    }
  }
  return ended > 0 ? silent : nullptr;
}

Cause silence(const ObservedTarget& target, double seconds) {
  return {Limit::failover,
          fmt::format("target {} has not answered for {:.0f} s: {} reads wait for it, others go on",
                      target.target, seconds, figure(target.in_flight)),
          "wait: a server that fails over answers within minutes; else look at that server"};
}

std::optional<Cause> find_failover(const ObservedWindow& window, const Past&, const StorageFacts&) {
  double errors = 0, failing = 0;
  const ObservedTarget* worst = nullptr;
  for (const ObservedTarget& target : window.targets) {
    errors += target.errors;
    failing += target.errors > 0 ? 1 : 0;
    if (target.errors > 0 && (worst == nullptr || target.errors > worst->errors)) {
      worst = &target;
    }
  }
  if (worst == nullptr || errors < fewest_errors) {
    const ObservedTarget* silent = silent_target(window);
    return silent == nullptr ? std::nullopt : std::optional(silence(*silent, window.seconds));
  }
  const bool few =
      failing <= std::max(1.0, most_targets * static_cast<double>(window.targets.size()));
  return Cause{
      Limit::failover,
      few ? fmt::format("server failover or eviction: {:.0f} reads of target {} failed in "
                        "{:.0f} s{}, others go on",
                        worst->errors, worst->target, window.seconds,
                        failing > 1 ? fmt::format(" and of {:.0f} others", failing - 1) : "")
          : fmt::format("{:.0f} reads failed in {:.0f} s on {:.0f} of {} targets: the "
                        "network, or this client was thrown out",
                        errors, window.seconds, failing, window.targets.size()),
      few ? "wait: reads are tried again; if it lasts, look at that server"
          : "look at this host's network, and at the client's log: dmesg | grep -i lustre"};
}

}  // namespace

extern const CauseKind failover_cause;
const CauseKind failover_cause = {Limit::failover, "failover", true, false, 1, find_failover};

}  // namespace sprat::io
