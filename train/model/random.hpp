// Random numbers as a pure function of what they are for.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "comm/base/hash.hpp"

namespace sprat::train {

/// A stream of numbers named by a seed and a purpose: element `index` is the same on every rank and
/// in any order (a counter hashed by SplitMix64's finaliser under a key).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view purpose)
      : key_(mix_bits(fnv1a(purpose) ^ mix_bits(seed))) {}

  std::uint64_t bits(std::uint64_t index) const {
    return mix_bits(key_ ^ mix_bits(index * golden_step));
  }
  /// In (0, 1).
  double uniform(std::uint64_t index) const {
    return (static_cast<double>(bits(index) >> 11) + 0.5) * 0x1p-53;
  }
  /// Mean 0, deviation 1 (Box and Muller 1958).
  double normal(std::uint64_t index) const {
    const double radius = std::sqrt(-2.0 * std::log(uniform(2 * index)));
    return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * index + 1));
  }

 private:
  std::uint64_t key_;
};

}  // namespace sprat::train
