// Cuts memory into arrays that begin at a cache line.
#pragma once

#include <cstddef>

namespace sprat::train {

inline constexpr std::size_t line_floats = 16;  ///< Of a cache line.

/// Without memory it only counts.
class Carver {
 public:
  explicit Carver(float* memory) : memory_(memory) {}
  float* take(std::size_t count) {
    float* const taken = memory_ == nullptr ? nullptr : memory_ + count_;
    count_ += (count + line_floats - 1) / line_floats * line_floats;
    return taken;
  }
  /// Taken so far.
  std::size_t count() const { return count_; }

 private:
  float* memory_;
  std::size_t count_ = 0;
};

}  // namespace sprat::train
