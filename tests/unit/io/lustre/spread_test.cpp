// Shards in an order that spreads over targets.
#include "io/lustre/spread.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

struct Shards {
  std::vector<ShardTargets> shards;
  std::vector<std::uint32_t> order;
};

/// Shards of equal size, each on one target, in a random order.
Shards shards_on_one_target_each(std::uint32_t count, int targets, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Shards made;
  for (std::uint32_t shard = 0; shard < count; ++shard) {
    const auto target = static_cast<Target>(random() % static_cast<std::uint64_t>(targets));
    made.shards.push_back({{{target, 100}}});
  }
  made.order.resize(count);
  std::iota(made.order.begin(), made.order.end(), 0u);
  std::shuffle(made.order.begin(), made.order.end(), random);
  return made;
}

/// The mean over windows of the largest number of shards on one target.
double mean_peak(const std::vector<std::uint32_t>& order, const Shards& made, std::size_t window) {
  double sum = 0;
  for (std::size_t first = 0; first + window <= order.size(); ++first) {
    std::map<Target, int> load;
    int peak = 0;
    for (std::size_t at = first; at < first + window; ++at) {
      peak = std::max(peak, ++load[made.shards[order[at]].bytes[0].first]);
    }
    sum += peak;
  }
  return sum / static_cast<double>(order.size() - window + 1);
}

/// No order does better: windows together hold all of the fullest target's shards.
double least_mean_peak(const Shards& made, std::size_t window) {
  std::map<Target, int> count;
  int most = 0;
  for (const ShardTargets& shard : made.shards) {
    most = std::max(most, ++count[shard.bytes[0].first]);
  }
  return std::max(1.0,
                  static_cast<double>(window) * most / static_cast<double>(made.shards.size()));
}

TEST(Spread, neighbours_lie_on_different_targets) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Shards made = shards_on_one_target_each(400, 8, seed);
    const auto spread = spread_over_targets(made.order, made.shards, {.window = 8});
    // The fullest target has so many of the shards, wherever they go.
    const double least = least_mean_peak(made, 8);
    EXPECT_LT(mean_peak(spread, made, 8) - least, (mean_peak(made.order, made, 8) - least) / 2)
        << "seed " << seed << ": less than half of what spreading could win was won";
  }
}

TEST(Spread, every_shard_comes_once_and_none_much_later) {
  const Shards made = shards_on_one_target_each(500, 3, 1);
  const SpreadOptions options{.window = 6, .look_ahead = 16};
  const auto spread = spread_over_targets(made.order, made.shards, options);
  EXPECT_EQ(std::set<std::uint32_t>(spread.begin(), spread.end()).size(), 500u);
  for (std::size_t place = 0; place < made.order.size(); ++place) {
    const auto now = std::ranges::find(spread, made.order[place]) - spread.begin();
    EXPECT_LE(static_cast<std::size_t>(now), place + options.look_ahead);
  }
}

TEST(Spread, equal_input_gives_equal_orders_and_one_target_keeps_it) {
  const Shards made = shards_on_one_target_each(200, 5, 2);
  EXPECT_EQ(spread_over_targets(made.order, made.shards, {}),
            spread_over_targets(made.order, made.shards, {}));
  const Shards alone = shards_on_one_target_each(200, 1, 3);
  EXPECT_EQ(spread_over_targets(alone.order, alone.shards, {}), alone.order);
}

TEST(Spread, targets_of_a_layout_have_its_bytes) {
  const FileLayout layout = {{.begin = 0, .end = 10, .targets = {7}},
                             {.begin = 10, .end = 30, .stripe_bytes = 4, .targets = {1, 2}}};
  // Stripes from byte 0 on: [8,12) is stripe 2 of target 1, so bytes 10 and 11 are there.
  std::map<Target, std::uint64_t> slow = {{7, 10}};
  for (std::uint64_t byte = 10; byte < 30; ++byte) {
    ++slow[(byte / 4) % 2 == 0 ? 1 : 2];
  }
  EXPECT_THAT(targets_of(layout).bytes,
              ElementsAre(Pair(1, slow[1]), Pair(2, slow[2]), Pair(7, 10)));
}

TEST(Spread, hosts_begin_apart) {
  EXPECT_EQ(first_of_host(100, 0, 4), 0u);
  EXPECT_EQ(first_of_host(100, 3, 4), 75u);
  EXPECT_EQ(first_of_host(10, 2, 4), 5u);
  EXPECT_EQ(first_of_host(3, 3, 4), 2u);
  EXPECT_THROW(first_of_host(10, 4, 4), Error);
}

}  // namespace
}  // namespace sprat::io
