// The permutation: every element once, and no order likelier than another.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "sprat/io.hpp"

namespace sprat {
namespace {

TEST(Permutation, visits_every_element_once) {
  for (std::uint64_t size = 1; size <= 512; ++size) {
    for (const std::uint64_t epoch : {0u, 1u, 7u}) {
      const Permutation permutation(1234, epoch, size);
      std::set<std::uint64_t> seen;
      for (std::uint64_t index = 0; index < size; ++index) {
        seen.insert(permutation(index));
      }
      ASSERT_EQ(seen.size(), size) << "epoch " << epoch;
      ASSERT_EQ(*seen.rbegin(), size - 1) << "epoch " << epoch;
    }
  }
}

TEST(Permutation, differs_by_seed_and_by_epoch) {
  constexpr std::uint64_t size = 1000;
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    const Permutation permutation(seed, epoch, size);
    std::vector<std::uint64_t> elements;
    for (std::uint64_t index = 0; index < size; ++index) {
      elements.push_back(permutation(index));
    }
    return elements;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(Permutation, leaves_no_more_neighbours_than_chance) {
  constexpr std::uint64_t size = 10'000;
  const Permutation permutation(5, 0, size);
  int neighbours = 0;
  for (std::uint64_t index = 0; index + 1 < size; ++index) {
    neighbours += permutation(index) + 1 == permutation(index + 1);
  }
  // By chance about one pair in all; ten are as good as impossible (Poisson, mean 1: 1e-7).
  EXPECT_LT(neighbours, 10);
}

TEST(Permutation, reaches_far_beyond_32_bits) {
  const std::uint64_t size = std::uint64_t{1} << 45;
  const Permutation permutation(5, 3, size);
  EXPECT_LT(permutation(size - 1), size);
  EXPECT_NE(permutation(0), permutation(size - 1));
}

/// How far counts are from being equal, in standard deviations of chi-square's distribution, whose
/// mean is its degrees of freedom, and whose variance twice as much.
double chi_square_deviation(const std::vector<double>& counts, double expected, double freedom) {
  double sum = 0;
  for (const double count : counts) {
    sum += (count - expected) * (count - expected) / expected;
  }
  return (sum - freedom) / std::sqrt(2 * freedom);
}

// Six deviations: beyond them lies less than one in 10^5 of all tests by chance (chi-square of few
// degrees has a longer tail than the normal distribution), and the seeds are fixed.
constexpr double most_deviations = 6;

TEST(Permutation, puts_each_element_as_often_in_each_place) {
  constexpr std::uint64_t keys = 1000;
  for (std::uint64_t size = 2; size <= 64; ++size) {
    std::vector<double> counts(size * size);
    for (std::uint64_t key = 0; key < keys; ++key) {
      const Permutation permutation(key, 0, size);
      for (std::uint64_t index = 0; index < size; ++index) {
        ++counts[permutation(index) * size + index];
      }
    }
    const auto n = static_cast<double>(size);
    EXPECT_LT(chi_square_deviation(counts, keys / n, (n - 1) * (n - 1)), most_deviations)
        << "size " << size;
  }
}

TEST(Permutation, puts_each_element_as_often_behind_each_other_one) {
  constexpr std::uint64_t keys = 1000;
  for (std::uint64_t size = 3; size <= 64; ++size) {
    std::vector<double> counts(size * size);
    for (std::uint64_t epoch = 0; epoch < keys; ++epoch) {
      const Permutation permutation(77, epoch, size);
      for (std::uint64_t index = 0; index + 1 < size; ++index) {
        ++counts[permutation(index) * size + permutation(index + 1)];
      }
    }
    std::vector<double> pairs;
    for (std::uint64_t i = 0; i < size * size; ++i) {
      if (i / size != i % size) {
        pairs.push_back(counts[i]);
      }
    }
    const auto n = static_cast<double>(size);
    EXPECT_LT(chi_square_deviation(pairs, keys / n, n * (n - 1) - 1), most_deviations)
        << "size " << size;
  }
}

}  // namespace
}  // namespace sprat
