// Percentiles of times, from a histogram of fixed size that may be merged with others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sprat::io {

/// Sixteen buckets for each doubling from a microsecond on: what percentile() tells is off by 1/32
/// of a doubling, 2.2 %, at most. 2 KiB. Times below a microsecond count as one, and those above 4
/// hours as 4 hours.
class LatencyHistogram {
 public:
  void add(double seconds, std::uint64_t times = 1);
  void merge(const LatencyHistogram& other);
  void clear() { *this = {}; }

  std::uint64_t count() const noexcept { return count_; }
  /// The time that a share of all times does not exceed, 0 < share <= 1; 0 of no times.
  double percentile(double share) const;

 private:
  static constexpr std::size_t per_doubling = 16, doublings = 34;
  std::array<std::uint32_t, per_doubling * doublings> buckets_{};
  std::uint64_t count_ = 0;
};

}  // namespace sprat::io
