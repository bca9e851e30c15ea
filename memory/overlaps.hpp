// Which buffers are alive together.
#pragma once

#include <cstddef>
#include <vector>

namespace sprat::fsdp {

/// Pairs of units whose buffers of one kind are alive together.
class Overlaps {
 public:
  explicit Overlaps(std::size_t units) : units_(units), pairs_(units * units, false) {}
  bool together(std::size_t a, std::size_t b) const { return pairs_[a * units_ + b]; }
  /// Whether the unit has such a buffer at all.
  bool used(std::size_t unit) const { return together(unit, unit); }
  /// All of `alive`, by unit, are alive now.
  void meet(const std::vector<bool>& alive);
  std::size_t units() const { return units_; }

 private:
  std::size_t units_;
  std::vector<bool> pairs_;
};

}  // namespace sprat::fsdp
