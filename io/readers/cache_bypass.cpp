// One window by each way, then one window in some is spent on the other way, since disks and what
// else computes change.
#include "io/readers/cache_bypass.hpp"

#include <algorithm>

namespace sprat::io {
namespace {

/// So much quicker reads past the cache have to be: what they bring has to be read anew.
constexpr double quicker = 1.2;
constexpr double trials_share = 0.02;
constexpr double least_spread = 16, most_spread = 256;

}  // namespace

/// A loader that is just quick enough makes up for lost time slowly: one that is asked for nine
/// tenths of what storage gives needs ten times as long as it lost.
std::uint32_t trial_windows(double better_rate, double other_rate) noexcept {
  const double lost_windows = better_rate / std::max(other_rate, 1.0) - 1;
  return static_cast<std::uint32_t>(
      std::clamp(lost_windows / trials_share, least_spread, most_spread));
}

CacheBypass::Way CacheBypass::next() noexcept {
  if (way_ == Way::through) {
    return Way::through;
  }
  // The cache fills bit by bit, so that later epochs find more and more in it, at the price of a
  // few copies now.
  if (++past_ >= limits_.kept_one_of) {
    past_ = 0;
    return Way::through;
  }
  return Way::past;
}

void CacheBypass::ended(std::uint64_t bytes, Moment now) noexcept {
  if (settled_bytes_ < limits_.settling_bytes) {
    settled_bytes_ += bytes;
    begin_ = now;
    return;
  }
  bytes_ += bytes;
  if (bytes_ >= limits_.window_bytes) {
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    judge(static_cast<double>(bytes_) / std::max(seconds, 1e-9));
  }
}

void CacheBypass::idles() noexcept {
  settled_bytes_ = 0;
  bytes_ = 0;
}

void CacheBypass::refuse() noexcept {
  refused_ = true;
  way_ = Way::through;
}

void CacheBypass::judge(double rate) noexcept {
  idles();  // the next window begins
  Rates& own = rates_[index(way_)];
  own = {.last = rate, .before = own.last};
  ++windows_;
  const Way other = way_ == Way::through ? Way::past : Way::through;
  if (refused_) {
    return;
  }
  if (rates_[index(other)].known() > 0) {
    const bool past_is_better =
        rates_[index(Way::past)].known() > quicker * rates_[index(Way::through)].known();
    const Way better = past_is_better ? Way::past : Way::through;
    if (better != better_) {
      better_ = better;
      between_trials_ = limits_.least_between_trials;
      windows_ = 0;
    } else if (way_ != better_) {
      between_trials_ =
          std::min(4 * between_trials_, trial_windows(rates_[index(other)].known(), own.known()));
    }
  }
  const bool trial_ends = way_ != better_;
  const bool tries_other = rates_[index(other)].known() == 0 || windows_ >= between_trials_;
  if (trial_ends || tries_other) {
    way_ = other;
    windows_ = 0;
  }
}

}  // namespace sprat::io
