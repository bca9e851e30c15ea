// Random numbers as a pure function of what they are for.
#pragma once

#include <cstdint>
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
  /// Mean 0, deviation 1, in (-6, 6): the sum of twelve uniform numbers (Irwin 1927, Hall 1927).
  /// It is a sum of integers, so its bits are the same on every machine. Box and Muller's normals
  /// would take a logarithm and a cosine, whose last bits differ from one libm to the next, and so
  /// would replicas on unlike hosts.
  double normal(std::uint64_t index) const {
    constexpr std::uint64_t words = 4, bits_each = 21,
                            largest = (std::uint64_t{1} << bits_each) - 1;
    std::uint64_t sum = 0;  // of three numbers of each word
    for (std::uint64_t word = 0; word < words; ++word) {
      const std::uint64_t random = bits(words * index + word);
      sum += (random & largest) + (random >> bits_each & largest) +
             (random >> (2 * bits_each) & largest);
    }
    constexpr std::uint64_t middle = 3 * words * largest / 2;
    return static_cast<double>(static_cast<std::int64_t>(sum - middle)) * 0x1p-21;
  }

 private:
  std::uint64_t key_;
};

}  // namespace sprat::train
