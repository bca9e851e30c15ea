// The table of causes, and how their figures are written.
#include "io/report/cause.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdlib>

namespace sprat::io {

extern const CauseKind failover_cause, released_cause, reductions_cause, short_reads_cause,
    metadata_cause, hot_target_cause, network_cause, decode_cause, budget_cause, burst_spent_cause,
    file_system_cause, loader_cause, compute_cause, unknown_cause;

// What passes by itself stands first, then what one command mends, then what costs money. Those
// that are only inferred from full or empty queues come last: others explain queues better.
std::span<const CauseKind* const> cause_kinds() {
  static constexpr std::array table = {&failover_cause,    &released_cause,    &reductions_cause,
                                       &short_reads_cause, &metadata_cause,    &hot_target_cause,
                                       &network_cause,     &decode_cause,      &budget_cause,
                                       &burst_spent_cause, &file_system_cause, &loader_cause,
                                       &compute_cause,     &unknown_cause};
  return table;
}

std::string_view name(Limit limit) noexcept {
  for (const CauseKind* kind : cause_kinds()) {
    if (kind->limit == limit) {
      return kind->name;
    }
  }
  return "?";
}

std::optional<double> base_after_burst(const ObservedWindow& window, const Past& past,
                                       const StorageFacts& facts) {
  // Rates within this share of the table's count as it; the peak was so much above what is now.
  constexpr double near_base = 0.15, burst_fall = 1.3;
  const double now = window.file_system_mbps;
  if (!facts.system || now <= 0 || past.peak_mbps < burst_fall * now) {
    return std::nullopt;
  }
  const FsxRates rates = fsx_rates(*facts.system);
  for (const double whole : {rates.disk, rates.memory}) {
    const double base = whole / facts.hosts;
    if (std::abs(now - base) <= near_base * base) {
      return base;
    }
  }
  return std::nullopt;
}

std::string figure(double value) {
  const double size = std::abs(value);
  constexpr double most = 1e15;  // what nobody reads digit by digit, and what is no number
  if (!(size < most)) {
    return fmt::format("{:.3g}", value);
  }
  if (size >= 1000) {
    // Thousands apart, since people compare such figures with bills.
    const auto whole = static_cast<long long>(std::llround(value));
    const std::string digits = fmt::format("{}", std::abs(whole));
    std::string apart = value < 0 ? "-" : "";
    for (std::size_t at = 0; at < digits.size(); ++at) {
      apart += at > 0 && (digits.size() - at) % 3 == 0 ? "," : "";
      apart += digits[at];
    }
    return apart;
  }
  return fmt::format("{:.{}f}", value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

std::string time_figure(double seconds) {
  return seconds < 1e-3  ? fmt::format("{:.0f} us", seconds * 1e6)
         : seconds < 1   ? fmt::format("{:.1f} ms", seconds * 1e3)
         : seconds < 120 ? fmt::format("{:.1f} s", seconds)
                         : fmt::format("{:.1f} min", seconds / 60);
}

}  // namespace sprat::io
