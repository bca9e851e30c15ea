// Random numbers as a pure function of what they are for.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace sprat::train {

/// A stream of numbers named by a seed and a purpose: element `index` is the same on every rank and
/// in any order (a counter hashed by SplitMix64's finaliser under a key).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view purpose) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char letter : purpose) {
      hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    }
    key_ = mix(hash ^ mix(seed));
  }

  std::uint64_t bits(std::uint64_t index) const {
    return mix(key_ ^ mix(index * 0x9e3779b97f4a7c15));
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
  static constexpr std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
  std::uint64_t key_;
};

}  // namespace sprat::train
