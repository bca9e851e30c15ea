// A few targets carry most of the bytes, or answer late, and the others wait.
#include <fmt/core.h>

#include <algorithm>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

std::optional<Cause> find_hot_target(const ObservedWindow& window, const Past& past,
                                     const StorageFacts& facts) {
  const std::vector<ObservedTarget> hot = hot_targets(window);
  // Behind a full link some queue is always the longest, and of spent credits some target's are
  // the first.
  if (hot.empty() || link_is_full(window) || base_after_burst(window, past, facts)) {
    return std::nullopt;
  }
  const ObservedTarget& worst =
      *std::ranges::max_element(hot, {}, [](const ObservedTarget& one) { return one.p50_s; });
  // Failed reads explain a slow target better.
  if (worst.errors > 1) {
    return std::nullopt;
  }
  double time = 0, rate = 0;
  for (const ObservedTarget& target : window.targets) {
    time += target.p50_s / static_cast<double>(window.targets.size());
    rate += target.mbps / static_cast<double>(window.targets.size());
  }
  const auto lone = facts.lone_files.find(worst.target);
  const bool known = lone != facts.lone_files.end();
  return Cause{
      Limit::hot_target,
      fmt::format(
          "hot target {}: {} MB/s at a median of {} with {} of {} requests in flight, where "
          "the {} targets{} have {} MB/s at {} on average{}",
          worst.target, figure(worst.mbps), time_figure(worst.p50_s), figure(worst.in_flight),
          figure(worst.in_flight_cap), window.targets.size(),
          facts.targets ? fmt::format(" in use, of {},", *facts.targets) : "", figure(rate),
          time_figure(time), known ? fmt::format("; {} has stripe count 1", lone->second) : ""),
      known ? fmt::format("lfs migrate -c 8 {}", lone->second)
            : std::string("spread its files: lfs migrate -c 8 FILE; or begin with other shards")};
}

}  // namespace

extern const CauseKind hot_target_cause;
const CauseKind hot_target_cause = {Limit::hot_target, "hot_target", true, false, 3,
                                    find_hot_target};

}  // namespace sprat::io
