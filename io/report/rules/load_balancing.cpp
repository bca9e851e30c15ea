// LoadBalancing: ranks are busy in different measure. As Debugger does, histograms of how busy each
// rank is are compared; their distance is the share of the time that lies elsewhere.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "io/report/rule.hpp"

namespace sprat::io {
namespace {

constexpr double far_apart = 0.5;
constexpr std::size_t bins = 10;

struct BusyShares {
  int rank = 0;
  std::array<double, bins> share{};
  double mean = 0;
};

BusyShares busy_shares(const RankReport& report, bool by_gpu) {
  BusyShares shares{.rank = report.rank};
  double seconds = 0;
  for (const Interval& one : judged(report)) {
    const double busy = by_gpu ? one.gpu_busy.value_or(0) : 1 - one.consumer_wait;
    const auto bin = static_cast<std::size_t>(std::clamp(busy, 0.0, 0.999) * bins);
    shares.share[bin] += one.seconds;
    shares.mean += one.seconds * busy;
    seconds += one.seconds;
  }
  for (double& share : shares.share) {
    share /= std::max(seconds, 1e-9);
  }
  shares.mean /= std::max(seconds, 1e-9);
  return shares;
}

// Half of the sum: what is missing in one bin is too much in another.
double distance(const BusyShares& one, const BusyShares& other) {
  double sum = 0;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    sum += std::abs(one.share[bin] - other.share[bin]);
  }
  return sum / 2;
}

RuleResult judge_load_balancing(std::span<const RankReport> run) {
  std::vector<BusyShares> ranks;
  const bool by_gpu = measures_gpu(run);
  for (const RankReport& report : run) {
    if (!judged(report).empty()) {
      ranks.push_back(busy_shares(report, by_gpu));
    }
  }
  if (ranks.size() < 2) {
    return {RuleResult::Verdict::not_measured,
            fmt::format("balance is between ranks, and {} reported", ranks.size())};
  }
  // The extremes by their means are compared: all pairs of thousands of ranks are too many.
  const auto [idlest, busiest] = std::ranges::minmax_element(ranks, {}, &BusyShares::mean);
  const double apart = distance(*idlest, *busiest);
  const bool differ = apart > far_apart && std::abs(busiest->mean - idlest->mean) > 1.0 / bins;
  return {
      differ ? RuleResult::Verdict::found : RuleResult::Verdict::fine,
      fmt::format("rank {} is busy {:.0f} % of the time and rank {} {:.0f} %; their histograms "
                  "are {:.2f} apart, where more than {:.1f} counts{}",
                  busiest->rank, 100 * busiest->mean, idlest->rank, 100 * idlest->mean, apart,
                  far_apart, by_gpu ? "" : "; GPUs not measured, busy is not waiting for samples")};
}

}  // namespace

extern const RuleKind load_balancing_rule;
const RuleKind load_balancing_rule = {"LoadBalancing", "ranks busy in different measure",
                                      judge_load_balancing};

}  // namespace sprat::io
