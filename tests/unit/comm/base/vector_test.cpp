// The vector arithmetic: an exponential within its bound, sums in a fixed order.
#include "comm/base/vector.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace sprat {
namespace {

double ulps(float got, double expected) {
  const float nearest = static_cast<float>(expected);
  const double ulp =
      double{std::nextafter(nearest, std::numeric_limits<float>::max())} - double{nearest};
  return std::abs(double{got} - expected) / ulp;
}

TEST(FastExp, is_within_two_ulp_over_its_range) {
  for (float x = -86.9f; x < 87.0f; x += 0.00173f) {
    ASSERT_LE(ulps(fast_exp(x), std::exp(double{x})), 2.0) << "at " << x;
  }
}

TEST(FastExp, vanishes_below_and_saturates_above) {
  EXPECT_EQ(fast_exp(-87.5f), 0.0f);
  EXPECT_EQ(fast_exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(1e30f), fast_exp(88.0f));
  EXPECT_TRUE(std::isfinite(fast_exp(88.0f)));
}

// What arenas put into memory that is given back is such a NaN.
TEST(FastExp, of_every_nan_is_nan) {
  for (const std::uint32_t payload : {0x1u, 0x2u, 0x400000u, 0x400001u, 0x7fffffu}) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      EXPECT_TRUE(std::isnan(fast_exp(std::bit_cast<float>(sign | 0x7f800000u | payload))))
          << payload << " " << sign;
    }
  }
}

TEST(Sum, adds_element_i_to_lane_i_mod_16_then_halves) {
  for (const int count : {1, 15, 16, 17, 47, 64, 100}) {
    std::vector<float> x;
    float lane[lanes] = {};
    for (int i = 0; i < count; ++i) {
      x.push_back(1.0f / static_cast<float>(i + 3));
      lane[i % lanes] += x.back();
    }
    for (int half = lanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        lane[i] += lane[i + half];
      }
    }
    EXPECT_EQ(sum(count, [&](int i) { return x[i]; }), lane[0]) << count;
  }
}

TEST(Maximum, finds_the_largest_wherever_it_is) {
  for (const int count : {1, 5, 16, 33, 70}) {
    for (int place = 0; place < count; ++place) {
      std::vector<float> x(count, -3.0f);
      x[place] = -1.0f;
      ASSERT_EQ(maximum(count, x.data()), -1.0f) << place << " of " << count;
    }
  }
}

}  // namespace
}  // namespace sprat
