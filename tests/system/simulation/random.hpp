// Seeded random numbers, the same everywhere.
#pragma once

#include <cstdint>

#include "comm/base/hash.hpp"

namespace sprat::simulation {

/// splitmix64. A value.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix_bits(state_ += golden_step); }
  /// 0 .. bound-1; bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  int between(int first, int last) {
    return first + static_cast<int>(below(static_cast<std::uint64_t>(last - first + 1)));
  }
  /// True once in `times`.
  bool once_in(std::uint64_t times) { return below(times) == 0; }
  /// 0 .. bound, small ones as likely as large ones.
  std::uint64_t any_scale(std::uint64_t bound) {
    int bits = 0;
    while (bits < 63 && bound >> bits != 0) {
      ++bits;
    }
    const std::uint64_t most = std::uint64_t{1} << below(static_cast<std::uint64_t>(bits) + 1);
    const std::uint64_t value = below(most);
    return value > bound ? bound : value;
  }

 private:
  std::uint64_t state_;
};

}  // namespace sprat::simulation
