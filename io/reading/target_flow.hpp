// How many reads one storage target is given at once: more while that brings more, fewer when they
// only wait for each other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/reading/retries.hpp"

namespace sprat::io {

/// For disks of this host, whose latencies vary more than they tell, all three are one number.
struct FlowLimits {
  std::uint32_t least_reads = 2, first_reads = 4, most_reads = 64;
};

struct FinishedRead {
  std::uint64_t bytes = 0;
  Moment took{};
  bool held_back = false;  ///< More reads were ready for this target than it was given.
};

/// Additive increase, multiplicative decrease. After each window of reads: one more if they took
/// less than 1.5 times the least, and more would have been given; 0.7 times as many if the slowest
/// twentieth took more than 3 times the least, and the rate did not rise. A value, without a clock.
class TargetFlow final {
 public:
  explicit TargetFlow(const FlowLimits& limits);

  std::uint32_t cap() const noexcept { return cap_; }
  void finished(const FinishedRead& read, Moment now);

 private:
  /// The least time of reads of about one size within some ten seconds: of the span that runs, and
  /// of the one before.
  struct LeastTime {
    Moment span_end{}, before = Moment::max(), now = Moment::max();
  };

  void judge(Moment now);

  FlowLimits limits_;
  std::uint32_t cap_;
  std::array<LeastTime, 65> least_;  // by the bits of a read's bytes
  std::vector<double> slowness_;     // of the window's reads: times the least
  std::uint64_t window_bytes_ = 0;
  Moment window_begin_ = Moment::min();
  bool held_back_ = false;
  double last_rate_ = 0;
  std::uint32_t windows_held_ = 0;  // in a row, in which more was wanted and not tried
};

}  // namespace sprat::io
