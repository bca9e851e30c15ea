// Mixtures: exact shares after any number of samples, every sample of a source once.
#include "io/order/mixture.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

const std::vector<std::vector<double>> all_weights = {
    {1},
    {1, 1},
    {0.5, 0.5},
    {0.7, 0.2, 0.1},
    {1, 2, 3, 4, 5, 6, 7},
    {1e-6, 1},
    {std::sqrt(2.0), std::exp(1.0), 1e-3, 100},
    std::vector<double>(64, 1),
};

// Each level of halves rounds once, by less than one sample. Inside of a block of b that has q of a
// source, the worst order has those first, or last: q (b - q) / b <= b / 4 off the straight line.
double deviation_bound(std::size_t sources) {
  return static_cast<double>(Mixture::block) / 4 + std::bit_width(sources - 1);
}

TEST(Mixture, shares_are_within_the_bound_after_every_prefix) {
  for (const std::vector<double>& weights : all_weights) {
    const Mixture mixture(5, weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double bound = deviation_bound(weights.size());
    std::vector<std::uint64_t> counts(weights.size());
    for (std::uint64_t g = 0; g < 200'000; ++g) {
      ++counts[mixture.draw(g).source];
      if (g % 7 != 0 && g > 5000) {
        continue;
      }
      for (std::size_t s = 0; s < weights.size(); ++s) {
        // Shares are rounded by up to sources / 2^32 a sample, here far less than one sample.
        ASSERT_LE(std::abs(static_cast<double>(counts[s]) -
                           static_cast<double>(g + 1) * weights[s] / sum),
                  bound + 0.01)
            << "source " << s << " of " << weights.size() << " after " << g + 1;
      }
    }
  }
}

TEST(Mixture, gives_each_sample_of_a_source_once) {
  for (const std::vector<double>& weights : all_weights) {
    const Mixture mixture(6, weights);
    std::vector<std::set<std::uint64_t>> seen(weights.size());
    constexpr std::uint64_t samples = 64 * 500;
    for (std::uint64_t g = 0; g < samples; ++g) {
      const SourceDraw draw = mixture.draw(g);
      ASSERT_TRUE(seen[draw.source].insert(draw.index).second) << "sample " << g;
    }
    for (const auto& indices : seen) {
      // Whole blocks have been drawn, so no index is left out.
      EXPECT_TRUE(indices.empty() || *indices.rbegin() == indices.size() - 1);
    }
  }
}

TEST(Mixture, keeps_its_shares_far_out) {
  const std::vector<double> weights = {3, 1};
  const Mixture mixture(6, weights);
  const std::uint64_t far = std::uint64_t{1} << 50;
  std::uint64_t first = 0;
  for (std::uint64_t g = far; g < far + 64'000; ++g) {
    const SourceDraw draw = mixture.draw(g);
    first += draw.source == 0 ? 1 : 0;
    const double share = draw.source == 0 ? 0.75 : 0.25;
    EXPECT_NEAR(static_cast<double>(draw.index), static_cast<double>(g) * share, 64);
  }
  EXPECT_EQ(first, 48'000u);
}

// Bresenham's order alone would give every rank of two its own source.
TEST(Mixture, gives_ranks_that_take_turns_their_shares_of_each_source) {
  const std::vector<double> weights = {1, 1};
  const Mixture mixture(6, weights);
  std::uint64_t even = 0;
  for (std::uint64_t g = 0; g < 20'000; g += 2) {
    even += mixture.draw(g).source;
  }
  EXPECT_NEAR(static_cast<double>(even), 5000, 250);  // five deviations of 10,000 fair draws
}

TEST(Mixture, refuses_weights_that_give_nothing) {
  const auto make = [](std::vector<double> weights) { Mixture(1, weights); };
  EXPECT_THROW(make({}), Error);
  EXPECT_THROW(make({1, 0}), Error);
  EXPECT_THROW(make({1, -1}), Error);
  EXPECT_THROW(make({1, std::nan("")}), Error);
  EXPECT_THROW(make({1, INFINITY}), Error);
  EXPECT_THROW(make({1, 1e-12}), Error);
  EXPECT_THROW(make({1e308, 1e308}), Error);
}

}  // namespace
}  // namespace sprat::io
