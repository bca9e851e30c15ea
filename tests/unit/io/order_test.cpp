// The sample order: a permutation each epoch, a pure function, every token visited.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

TEST(Permutation, visits_every_element_once) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
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

TEST(SampleOrder, windows_of_an_epoch_do_not_overlap_and_stay_inside) {
  for (const std::uint64_t tokens : {32u, 33u, 100u, 1000u, 1023u}) {
    const std::uint64_t length = 16;
    const SampleOrder order(9, tokens, length);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<std::uint64_t> begins;
      for (std::uint64_t index = 0; index < order.per_epoch(); ++index) {
        begins.push_back(order.begin(epoch * order.per_epoch() + index));
      }
      std::sort(begins.begin(), begins.end());
      for (std::size_t i = 1; i < begins.size(); ++i) {
        ASSERT_EQ(begins[i], begins[i - 1] + length) << "tokens " << tokens;
      }
      ASSERT_LT(begins.front(), length);
      ASSERT_LE(begins.back() + length, tokens);
      ASSERT_LE(tokens - (begins.back() + length), 2 * length) << "covers all but the shift";
    }
  }
}

TEST(SampleOrder, a_text_too_short_is_refused_with_both_numbers) {
  try {
    SampleOrder(1, 31, 16);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("31"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("32"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sprat
