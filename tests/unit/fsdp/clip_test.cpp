// The norm: the same bits however many shards the blocks are spread over.
#include "fsdp/clip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

TEST(Clip, sums_have_the_same_bits_for_every_number_of_shards) {
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
  std::vector<std::vector<double>> by_shards;
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
    by_shards.push_back(sums_in_block_order(gathered, per_shard, shards));
    EXPECT_EQ(by_shards.back(), by_shards.front()) << shards << " shards";
  }
}

TEST(Clip, windows_hold_at_most_so_many_blocks_or_one_unit) {
  const std::vector<std::size_t> blocks = {3, 1, 16, 7, 2, 2};
  EXPECT_EQ(norm_windows(blocks, 100), (std::vector<std::size_t>{6}));
  EXPECT_EQ(norm_windows(blocks, 10), (std::vector<std::size_t>{2, 3, 5, 6}));
  EXPECT_EQ(norm_windows(blocks, 1), (std::vector<std::size_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(norm_windows({}, 1), std::vector<std::size_t>{});
}

TEST(Clip, a_unit_is_summed_in_block_order_whatever_units_are_beside_it) {
  const std::vector<double> gathered = {1, 0x1p-60, 3, 5, 0x1p-53, 0x1p-53, 7, 11};
  EXPECT_EQ(sums_in_block_order(gathered, std::vector<std::size_t>{2, 2}, 2),
            (std::vector<double>{1, 3 + 5 + 7 + 11}))
      << "small ones that come one by one are lost";
  EXPECT_EQ(sums_in_block_order(std::span(gathered).first(1), std::vector<std::size_t>{1, 0}, 1),
            (std::vector<double>{1, 0}));
}

TEST(Clip, factor_bounds_the_norm) {
  EXPECT_EQ(clip_factor(10, 0), 1.0) << "0 is no limit";
  EXPECT_EQ(clip_factor(0.5, 1), 1.0);
  EXPECT_EQ(clip_factor(4, 1), 1.0 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(0, 1), 1.0);
}

}  // namespace
}  // namespace sprat::fsdp
