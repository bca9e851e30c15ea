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

double reads_ended(const ObservedWindow& window) {
  double ended = 0;
  for (const ObservedTarget& target : window.targets) {
    ended += target.reads;
  }
  return ended;
}

/// A target whose reads wait and none of which ended in the whole window; null if there is none.
/// Batches are taken in order, so a target that is silent for long lets the others run out of work:
/// then nothing ends anywhere, and it is the one that still has reads.
const ObservedTarget* silent_target(const ObservedWindow& window) {
  // All are as silent while they wait for the archive.
  if (reads_ended(window) == 0 && window.reads_blocked > 0) {
    return nullptr;
  }
  const ObservedTarget* silent = nullptr;
  for (const ObservedTarget& target : window.targets) {
    // Half a request on average: one that began at the window's end says nothing. Nor do as many as
    // wait for the archive, which may be these: its files are slow, and not their server.
    if (target.reads == 0 && target.in_flight >= 0.5 && target.in_flight > window.reads_blocked &&
        (silent == nullptr || target.in_flight > silent->in_flight)) {
      silent = &target;
    }
  }
  return silent;
}

Cause silence(const ObservedTarget& target, const ObservedWindow& window) {
  return {Limit::failover,
          fmt::format("target {} has not answered for {:.0f} s: {} reads wait for it, {}",
                      target.target, window.seconds, figure(target.in_flight),
                      reads_ended(window) > 0 ? "others go on"
                                              : "and nothing else can be read before them"),
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
    return silent == nullptr ? std::nullopt : std::optional(silence(*silent, window));
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
