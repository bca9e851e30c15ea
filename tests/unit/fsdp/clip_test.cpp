// The norm: the same bits however many shards the blocks are spread over.
#include "fsdp/clip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "fsdp/plan/layout.hpp"

namespace sprat::fsdp {
namespace {

TEST(Clip, block_sums_are_exact_for_small_integers) {
  std::vector<float> values(3 * block_elements);
  std::vector<double> expected(3, 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 17) - 8.0f;
    expected[i / block_elements] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  std::vector<double> sums(3, -1.0);
  block_sums_of_squares(values, sums);
  EXPECT_EQ(sums, expected);
}

TEST(Clip, squares_of_the_largest_floats_do_not_overflow) {
  std::vector<float> values(block_elements, std::numeric_limits<float>::max());
  std::vector<double> sums(1);
  block_sums_of_squares(values, sums);
  EXPECT_TRUE(std::isfinite(sums[0]));
}

TEST(Clip, the_sum_has_the_same_bits_for_every_number_of_shards) {
  const std::vector<std::size_t> unit_blocks = {3, 1, 16, 7};  // without padding
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-30, 30);
  std::vector<std::vector<double>> sums;
  for (const std::size_t blocks : unit_blocks) {
    sums.emplace_back();
    for (std::size_t block = 0; block < blocks; ++block) {
      sums.back().push_back(std::exp2(exponent(random)));
    }
  }
  std::vector<double> totals;
  for (const int shards : {1, 2, 3, 4, 5, 8}) {
    std::vector<std::size_t> per_shard;
    for (const std::size_t blocks : unit_blocks) {
      per_shard.push_back((blocks + shards - 1) / shards);
    }
    std::vector<double> gathered;
    for (int shard = 0; shard < shards; ++shard) {
      for (std::size_t unit = 0; unit < sums.size(); ++unit) {
        for (std::size_t block = 0; block < per_shard[unit]; ++block) {
          const std::size_t global = shard * per_shard[unit] + block;
          gathered.push_back(global < sums[unit].size() ? sums[unit][global] : 0.0);
        }
      }
    }
    totals.push_back(sum_in_block_order(gathered, per_shard, shards));
    EXPECT_EQ(totals.back(), totals.front()) << shards << " shards";
  }
}

TEST(Clip, windows_hold_at_most_so_many_blocks_or_one_unit) {
  const std::vector<std::size_t> blocks = {3, 1, 16, 7, 2, 2};
  EXPECT_EQ(norm_windows(blocks, 100), (std::vector<std::size_t>{6}));
  EXPECT_EQ(norm_windows(blocks, 10), (std::vector<std::size_t>{2, 3, 5, 6}));
  EXPECT_EQ(norm_windows(blocks, 1), (std::vector<std::size_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(norm_windows({}, 1), std::vector<std::size_t>{});
}

TEST(Clip, the_sum_has_the_same_bits_in_every_window) {
  constexpr std::size_t shards = 2;
  const std::vector<std::size_t> blocks = {3, 1, 16, 7};
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-30, 30);
  std::vector<std::vector<std::vector<double>>> sums(shards);  // by shard, unit, block
  for (auto& units : sums) {
    for (const std::size_t count : blocks) {
      std::generate_n(std::back_inserter(units.emplace_back()), count,
                      [&] { return std::exp2(exponent(random)); });
    }
  }
  std::vector<double> totals;
  for (const std::size_t most : {1, 4, 20, 100}) {
    double total = 0;
    std::size_t first = 0;
    for (const std::size_t end : norm_windows(blocks, most)) {
      std::vector<double> gathered;
      for (const auto& units : sums) {
        for (std::size_t unit = first; unit < end; ++unit) {
          gathered.insert(gathered.end(), units[unit].begin(), units[unit].end());
        }
      }
      total = sum_in_block_order(gathered, std::span(blocks).subspan(first, end - first), shards,
                                 total);
      first = end;
    }
    totals.push_back(total);
    EXPECT_EQ(totals.back(), totals.front()) << most << " blocks a window";
  }
}

TEST(Clip, factor_bounds_the_norm) {
  EXPECT_EQ(clip_factor(10, 0), 1.0) << "0 is no limit";
  EXPECT_EQ(clip_factor(0.5, 1), 1.0);
  EXPECT_EQ(clip_factor(4, 1), 1.0 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(0, 1), 1.0);
}

}  // namespace
}  // namespace sprat::fsdp
