// Keys of orders: one seed gives numbers of its own to each purpose.
#pragma once

#include <cstdint>

#include "comm/base/hash.hpp"

namespace sprat::io {

/// A step of SplitMix64; without the step, 0 would stay 0.
constexpr std::uint64_t order_key(std::uint64_t value) { return mix_bits(value + golden_step); }

/// What draws from a seed beside the main permutation, which takes the seed itself. The numbers
/// decide on orders that runs have saved: they never change.
enum class DrawnFor : std::uint64_t {
  chunks = 1,
  within_chunks = 2,
  shifts = 3,
  samples = 4,
  equal_documents = 5,
  sources = 6,
};

constexpr std::uint64_t order_key(std::uint64_t seed, DrawnFor purpose) {
  return order_key(seed ^ order_key(static_cast<std::uint64_t>(purpose)));
}

}  // namespace sprat::io
