// Medians of sizes that were seen both ways are compared, since a job has few sizes of reductions,
// and each takes another time.
#include "io/cores/core_governor.hpp"

#include <algorithm>
#include <bit>

namespace sprat::io {
namespace {

/// Of each size and each way, before they are compared.
constexpr std::uint32_t least_seen = 8;
/// Less than this nobody can tell from noise; below half of it reductions are well again.
constexpr double suffers = 0.05;
constexpr int seconds_that_agree = 3;

constexpr std::chrono::milliseconds probe_lasts{50};
constexpr std::chrono::seconds between_probes{10};

constexpr std::size_t busy_way = 1, quiet_way = 0;

}  // namespace

std::optional<double> ReductionSlowdown::Ring::median() const {
  if (count < least_seen) {
    return std::nullopt;
  }
  std::array<float, kept> sorted = seconds;
  const std::size_t filled = std::min<std::size_t>(count, kept);
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(filled / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(filled));
  return *middle;
}

void ReductionSlowdown::add(std::chrono::nanoseconds took, std::size_t bytes, double busy,
                            int threads) noexcept {
  const bool is_busy = busy >= 0.5 * threads, is_quiet = busy <= 0.25 * threads;
  if (threads < 1 || is_busy == is_quiet) {
    return;
  }
  const auto size =
      std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes)), sizes - 1);
  const float seconds = std::chrono::duration<float>(took).count();
  rings_[size][is_busy ? busy_way : quiet_way].add(seconds);
}

std::optional<double> ReductionSlowdown::slowdown() const {
  // Sizes count by the time that they take while others decode, since that time is what is lost.
  double busy_seconds = 0, quiet_seconds = 0;
  for (const auto& ways : rings_) {
    const auto busy = ways[busy_way].median(), quiet = ways[quiet_way].median();
    if (busy && quiet) {
      const double count = std::min<std::uint32_t>(ways[busy_way].count, kept);
      busy_seconds += *busy * count;
      quiet_seconds += *quiet * count;
    }
  }
  if (quiet_seconds <= 0) {
    return std::nullopt;
  }
  return busy_seconds / quiet_seconds - 1;
}

bool ReductionSlowdown::knows_quiet() const noexcept {
  return std::ranges::all_of(rings_, [](const auto& ways) {
    return ways[busy_way].count < least_seen || ways[quiet_way].count >= least_seen;
  });
}

CoreGovernor::CoreGovernor(int decode_threads)
    : threads_(std::max(1, decode_threads)), decision_{.decoders = threads_, .give_way = false} {}

CoreDecision CoreGovernor::decide(const CoreObservation& observed) {
  const double seconds = std::max(observed.seconds, 1e-9);
  const double slowdown = std::max(0.0, observed.slowdown.value_or(0));
  // Of a reduction that takes 1 + s instead of 1, s / (1 + s) of its time is lost.
  const double lost = observed.reducing_seconds / seconds * slowdown / (1 + slowdown);
  const double waited = observed.consumer_wait;
  // Fewer decoders make the consumer wait: that must not cost more than it gives.
  const bool less = slowdown > suffers && lost > waited;
  const bool more = slowdown < suffers / 2 || waited > lost;
  for_less_ = less ? for_less_ + 1 : 0;
  for_more_ = more ? for_more_ + 1 : 0;
  if (for_less_ >= seconds_that_agree) {
    for_less_ = 0;
    if (decision_.give_way) {
      decision_.decoders = std::max(1, decision_.decoders - 1);
    }
    decision_.give_way = true;
  }
  if (for_more_ >= seconds_that_agree) {
    for_more_ = 0;
    // Priority comes back last: to give way costs nothing where cores are idle.
    if (decision_.decoders < threads_) {
      ++decision_.decoders;
    } else if (waited > lost) {
      decision_.give_way = false;
    }
  }
  return decision_;
}

bool QuietProbe::pauses(Time now, bool wanted) noexcept {
  if (last_ && now < *last_ + probe_lasts) {
    return true;
  }
  if (!wanted || (last_ && now < *last_ + between_probes)) {
    return false;
  }
  last_ = now;
  return true;
}

}  // namespace sprat::io
