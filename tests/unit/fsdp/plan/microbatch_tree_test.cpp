// What is added to what, for every order that contributions may come in.
#include "fsdp/plan/microbatch_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

/// tree(first, last) of docs/numerics.md, written out.
std::string canonical_sum(int first, int last) {
  if (last - first == 1) {
    return std::to_string(first);
  }
  int half = 1;
  while (2 * half < last - first) {
    half *= 2;
  }
  return text("(", canonical_sum(first, first + half), "+", canonical_sum(first + half, last), ")");
}

/// A sum as it is written, lower contributions on the left: f32 addition commutes.
struct Written {
  int first = 0;
  std::string sum;
};
Written joined(const Written& a, const Written& b) {
  const bool in_order = a.first < b.first;
  return {std::min(a.first, b.first),
          text("(", in_order ? a.sum : b.sum, "+", in_order ? b.sum : a.sum, ")")};
}

struct Played {
  std::string sum;  ///< What is in buffer 0 in the end.
  int buffers = 0;  ///< In use at a time, at most.
};

/// Begins contributions in turn and finishes each `delay` places later.
Played play(const std::vector<int>& order, std::size_t delay) {
  MicrobatchTree tree(static_cast<int>(order.size()));
  std::vector<Written> held(order.size());
  Played played;
  for (std::size_t at = 0; at < order.size() + delay; ++at) {
    if (at < order.size()) {
      const int buffer = tree.buffer(order[at]);
      EXPECT_EQ(tree.buffer(order[at]), buffer) << "asked again";
      held[static_cast<std::size_t>(buffer)] = {order[at], std::to_string(order[at])};
      const auto now = std::ranges::count(tree.in_use(), true);
      played.buffers = std::max(played.buffers, static_cast<int>(now));
    }
    if (at >= delay) {
      const int finished = order[at - delay];
      EXPECT_FALSE(tree.is_finished(finished));
      for (const auto& [into, from] : tree.finish(finished)) {
        Written& sum = held[static_cast<std::size_t>(into)];
        sum = joined(sum, held[static_cast<std::size_t>(from)]);
      }
      EXPECT_TRUE(tree.is_finished(finished));
    }
  }
  EXPECT_EQ(std::ranges::count(tree.in_use(), true), 1);
  played.sum = held[0].sum;
  return played;
}

std::vector<int> in_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(MicrobatchTree, every_order_of_up_to_six_gives_the_canonical_sum) {
  for (int count = 1; count <= 6; ++count) {
    std::vector<int> order = in_order(count);
    do {
      for (const std::size_t delay : {0, 1, 2}) {
        ASSERT_EQ(play(order, delay).sum, canonical_sum(0, count)) << "delay " << delay;
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(MicrobatchTree, random_orders_of_many_give_the_canonical_sum) {
  std::mt19937 random(1);
  for (const int count : {7, 8, 12, 16, 31, 100}) {
    std::vector<int> order = in_order(count);
    for (int round = 0; round < 20; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      ASSERT_EQ(play(order, round % 4).sum, canonical_sum(0, count)) << count;
    }
  }
}

TEST(MicrobatchTree, in_order_needs_one_buffer_more_than_the_logarithm) {
  for (int count = 1; count <= 70; ++count) {
    const auto lg = std::bit_width(static_cast<unsigned>(count)) - 1;
    EXPECT_EQ(play(in_order(count), 0).buffers, lg + 1) << count;
  }
}

TEST(MicrobatchTree, backwards_it_needs_as_many_as_in_order_if_the_count_is_a_power_of_two) {
  for (const int count : {1, 2, 4, 8, 64}) {
    std::vector<int> order = in_order(count);
    std::ranges::reverse(order);
    EXPECT_EQ(play(order, 0).buffers, play(in_order(count), 0).buffers) << count;
  }
}

TEST(MicrobatchTree, what_was_not_begun_is_not_finished) {
  MicrobatchTree tree(2);
  tree.buffer(1);
  EXPECT_THROW(tree.finish(0), Error);
  EXPECT_FALSE(tree.is_finished(0));
}

}  // namespace
}  // namespace sprat::fsdp
