#include "io/reading/target_flow.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

constexpr Moment least_time_span = std::chrono::seconds(10);
constexpr std::uint32_t least_window = 8;
constexpr double quick_ratio = 1.5, slow_ratio = 3, decrease_factor = 0.7;
/// A rate rises if it is larger by more than two windows of a steady target differ.
constexpr double rise_factor = 1.05;
/// After so many windows one more read is tried although the rate stood still: it may have done so
/// for another reason.
constexpr std::uint32_t patience_windows = 4;

double value_at_share(std::vector<double>& values, double share) {
  const auto index = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + index);
  return values[static_cast<std::size_t>(index)];
}

}  // namespace

TargetFlow::TargetFlow(const FlowLimits& limits) : limits_(limits), cap_(limits.first_reads) {
  require(1 <= limits.least_reads && limits.least_reads <= limits.first_reads &&
              limits.first_reads <= limits.most_reads,
          "a target cannot have ", limits.first_reads, " reads at first, of ", limits.least_reads,
          " at least and ", limits.most_reads, " at most");
}

void TargetFlow::finished(const FinishedRead& read, Moment now) {
  if (window_begin_ == Moment::min()) {
    window_begin_ = now - read.took;
  }
  // Large reads take longer than small ones, so each is held against those of its size.
  LeastTime& least = least_[static_cast<std::size_t>(std::bit_width(read.bytes))];
  if (now >= least.span_end) {
    const bool neighbours = now - least.span_end < least_time_span;
    least.before = neighbours ? least.now : Moment::max();
    least.now = Moment::max();
    least.span_end = now + least_time_span;
  }
  const Moment took = std::max(read.took, Moment(1));
  least.now = std::min(least.now, took);
  const Moment base = std::min(least.now, least.before);
  slowness_.push_back(static_cast<double>(took.count()) / static_cast<double>(base.count()));
  window_bytes_ += read.bytes;
  held_back_ = held_back_ || read.held_back;
  if (slowness_.size() >= std::max(least_window, cap_)) {
    judge(now);
  }
}

void TargetFlow::judge(Moment now) {
  const double seconds = std::chrono::duration<double>(now - window_begin_).count();
  const double rate = static_cast<double>(window_bytes_) / std::max(seconds, 1e-9);
  const bool rises = rate > rise_factor * last_rate_;
  if (value_at_share(slowness_, 0.95) > slow_ratio && !rises) {
    cap_ = std::max(limits_.least_reads, static_cast<std::uint32_t>(decrease_factor * cap_));
    windows_held_ = 0;
  } else if (held_back_ && value_at_share(slowness_, 0.5) < quick_ratio) {
    if (rises || ++windows_held_ >= patience_windows) {
      cap_ = std::min(limits_.most_reads, cap_ + 1);
      windows_held_ = 0;
    }
  }
  last_rate_ = rate;
  slowness_.clear();
  window_bytes_ = 0;
  window_begin_ = now;
  held_back_ = false;
}

}  // namespace sprat::io
