#include "io/report/percentiles.hpp"

#include <algorithm>
#include <cmath>

namespace sprat::io {
namespace {

constexpr double shortest_time = 1e-6;

}  // namespace

void LatencyHistogram::add(double seconds, std::uint64_t times) {
  const double doubled = std::log2(std::max(seconds, shortest_time) / shortest_time);
  const double bucket = doubled * per_doubling;
  // The cast is of a number that fits: a NaN goes into the last bucket, as endless times do.
  const std::size_t last = buckets_.size() - 1;
  const std::size_t index =
      bucket < static_cast<double>(last) ? static_cast<std::size_t>(bucket) : last;
  buckets_[index] += static_cast<std::uint32_t>(times);
  count_ += times;
}

void LatencyHistogram::merge(const LatencyHistogram& other) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index] += other.buckets_[index];
  }
  count_ += other.count_;
}

double LatencyHistogram::percentile(double share) const {
  if (count_ == 0) {
    return 0;
  }
  const double wanted = share * static_cast<double>(count_);
  double seen = 0;
  std::size_t index = 0;
  while (index + 1 < buckets_.size()) {
    seen += buckets_[index];
    if (seen >= wanted) {
      break;
    }
    ++index;
  }
  // The bucket's middle on the scale of doublings is off by the same factor either way.
  return shortest_time *
         std::exp2((static_cast<double>(index) + 0.5) / static_cast<double>(per_doubling));
}

}  // namespace sprat::io
