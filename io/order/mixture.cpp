#include "io/order/mixture.hpp"

#include <cmath>
#include <numeric>

#include "comm/base/check.hpp"
#include "io/order/order_key.hpp"
#include "sprat/io.hpp"

namespace sprat::io {
namespace {

__extension__ using Unsigned128 = unsigned __int128;

/// floor(count * share / 2^64).
std::uint64_t shared_part(std::uint64_t count, std::uint64_t share) {
  return static_cast<std::uint64_t>(Unsigned128{count} * share >> 64);
}

/// As whole numbers that add up to about 2^32. From here on nothing is rounded, so all machines
/// come to the same order; division and rounding of doubles are exact in IEEE's sense.
std::vector<std::uint64_t> whole_weights(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    require(std::isfinite(weight) && weight > 0, "the weight ", weight,
            " of a source is not above 0: leave the source out");
    sum += weight;
  }
  require(std::isfinite(sum), "the weights add up to ", sum, ": give smaller ones");
  std::vector<std::uint64_t> whole;
  for (const double weight : weights) {
    const double part = weight / sum * 0x1p32;
    require(part >= 1, "the weight ", weight, " is below 2^-32 of all, ", sum,
            ": leave the source out, or give it more");
    whole.push_back(static_cast<std::uint64_t>(std::round(part)));
  }
  return whole;
}

}  // namespace

Mixture::Mixture(std::uint64_t seed, std::span<const double> weights)
    : seed_(order_key(seed, DrawnFor::sources)) {
  require(!weights.empty(), "a mixture needs a source");
  add_node(whole_weights(weights), 0);
}

std::size_t Mixture::add_node(std::span<const std::uint64_t> weights, std::uint32_t first) {
  const std::size_t at = nodes_.size();
  const auto count = static_cast<std::uint32_t>(weights.size());
  nodes_.push_back({.first = first, .count = count});
  if (count > 1) {
    const std::uint32_t half = count / 2;
    const auto left = weights.first(half), right = weights.subspan(half);
    const auto left_weight = std::accumulate(left.begin(), left.end(), std::uint64_t{0});
    const auto weight = std::accumulate(right.begin(), right.end(), left_weight);
    nodes_[at].left_share = static_cast<std::uint64_t>((Unsigned128{left_weight} << 64) / weight);
    const std::size_t left_node = add_node(left, first);
    const std::size_t right_node = add_node(right, first + half);
    nodes_[at].left = left_node;
    nodes_[at].right = right_node;
  }
  return at;
}

SourceDraw Mixture::draw(std::uint64_t sample) const {
  if (nodes_.front().count == 1) {
    return {.source = 0, .index = sample};
  }
  const Permutation within(seed_, sample / block, block);
  std::uint64_t index = sample / block * block + within(sample % block);
  const Node* node = &nodes_.front();
  while (node->count > 1) {
    // The sample is the left half's if the left half has one more with it than without it.
    const std::uint64_t left = shared_part(index, node->left_share);
    const bool goes_left = shared_part(index + 1, node->left_share) > left;
    index = goes_left ? left : index - left;
    node = &nodes_[goes_left ? node->left : node->right];
  }
  return {.source = node->first, .index = index};
}

}  // namespace sprat::io
