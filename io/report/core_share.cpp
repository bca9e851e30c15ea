#include "io/report/core_share.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace sprat::io {
namespace {

// From here on a thread that wants a core waits for one.
constexpr double all_taken = 0.95, enough_left = 0.85;

double cores_taken(const CoresInterval& cores, double seconds) {
  return (cores.decode_seconds + cores.read_seconds + cores.reduce_seconds) / seconds;
}

}  // namespace

std::optional<CoreShare> core_share(const ObservedWindow& window, const Past& past) {
  if (!window.cores || window.cores->reduced_bytes == 0 || window.cores->budget <= 0) {
    return std::nullopt;
  }
  const CoresInterval& cores = *window.cores;
  CoreShare share{.budget = cores.budget,
                  .decode = cores.decode_seconds / window.seconds,
                  .read = cores.read_seconds / window.seconds,
                  .reduce = cores.reduce_seconds / window.seconds};
  share.wanted = share.decode + share.read + share.reduce;
  if (cores.slowdown) {
    // Seen both ways in this run: nothing has to be concluded from how full the cores are.
    share.slowdown = std::max(0.0, *cores.slowdown);
    share.over = true;
    return share;
  }
  if (cores.reduce_seconds == 0 && !past.reduction_seconds_per_byte) {
    return std::nullopt;  // nothing to compare with
  }
  const auto bytes = static_cast<double>(cores.reduced_bytes);
  // A reduction that nobody disturbs takes about as long as its own instructions do.
  share.estimated = !past.reduction_seconds_per_byte;
  const double undisturbed =
      past.reduction_seconds_per_byte.value_or(cores.reduce_seconds / bytes) * bytes;
  share.slowdown = undisturbed > 0 ? std::max(0.0, cores.reduced_in_seconds / undisturbed - 1) : 0;
  share.over = cores_taken(cores, window.seconds) >= all_taken * cores.budget;
  share.wanted = share.decode + share.read + share.reduce * (1 + share.slowdown);
  return share;
}

std::string core_share_sentence(const CoreShare& share) {
  return fmt::format(
      "preprocessing slows all_reduce by {}{:.0f} %: of {} cores decoding takes {}, reading {}{}",
      share.estimated ? "about " : "", 100 * share.slowdown, figure(share.budget),
      figure(share.decode), figure(share.read),
      share.reduce > 0 ? fmt::format(", reductions {}", figure(share.reduce)) : "");
}

std::optional<double> undisturbed_seconds_per_byte(const ObservedWindow& window) {
  if (!window.cores || window.cores->reduced_bytes == 0 || window.cores->budget <= 0 ||
      cores_taken(*window.cores, window.seconds) > enough_left * window.cores->budget) {
    return std::nullopt;  // disturbed, or not to be told
  }
  return window.cores->reduced_in_seconds / static_cast<double>(window.cores->reduced_bytes);
}

}  // namespace sprat::io
