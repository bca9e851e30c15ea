// Percentiles of a histogram, held against sorted times.
#include "io/report/percentiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace sprat::io {
namespace {

/// Half a bucket of a sixteenth of a doubling, either way, and rounding of the logarithm.
const double resolution = std::exp2(1.0 / 32) * (1 + 1e-9);

TEST(LatencyHistogram, percentiles_are_those_of_the_sorted_times) {
  std::mt19937_64 random(3);
  for (const double spread : {0.1, 1.0, 3.0}) {
    LatencyHistogram histogram;
    std::vector<double> times;
    for (int time = 0; time < 5000; ++time) {
      times.push_back(1e-3 * std::exp(spread * std::normal_distribution<double>()(random)));
      histogram.add(times.back());
    }
    std::ranges::sort(times);
    for (const double share : {0.01, 0.5, 0.95, 0.99, 1.0}) {
      const auto place = static_cast<std::size_t>(std::ceil(share * 5000)) - 1;
      // What is shorter than a microsecond counts as one.
      const double exact = std::max(times[place], 1e-6), told = histogram.percentile(share);
      EXPECT_LE(told, exact * resolution) << share;
      EXPECT_GE(told, exact / resolution) << share;
    }
  }
}

TEST(LatencyHistogram, merged_is_as_if_added_together) {
  LatencyHistogram one, other, both;
  for (int time = 1; time < 1000; ++time) {
    (time % 3 == 0 ? one : other).add(time * 1e-4);
    both.add(time * 1e-4);
  }
  one.merge(other);
  EXPECT_EQ(one.count(), both.count());
  for (const double share : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(one.percentile(share), both.percentile(share));
  }
}

TEST(LatencyHistogram, takes_any_time) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0);
  for (const double time : {0.0, -1.0, 1e-12, 1e12, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    histogram.add(time);
  }
  EXPECT_EQ(histogram.count(), 6u);
  EXPECT_LT(histogram.percentile(0.01), 2e-6);
  EXPECT_GT(histogram.percentile(1), 1e4);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0u);
}

}  // namespace
}  // namespace sprat::io
