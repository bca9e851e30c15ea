// Bin packing: which documents share a sample, so that little of it stays empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sprat::io {

/// Items of a size from 1 to the capacity, in bins.
struct BinPacking {
  /// All items that were packed, the largest first, of equal ones in their order.
  std::vector<std::uint32_t> items;
  /// Where among `items` each size begins, and the end.
  std::vector<std::uint32_t> class_begins;
  /// Bin b has the items of places `slots[bin_begins[b]]` up to `slots[bin_begins[b + 1] - 1]`.
  std::vector<std::uint32_t> slots, bin_begins;

  std::size_t bins() const noexcept { return bin_begins.size() - 1; }
};

/// Best fit decreasing (Johnson 1973): each item, the largest first, goes where it leaves least
/// room; at most 11/9 of the fewest bins there can be, and one. sizes[i] <= capacity; an item of
/// size 0 goes nowhere. How many bins there are, and what sizes are in each, depends on the sizes
/// alone, whatever their order. Cost: O(items log items).
BinPacking best_fit(std::span<const std::uint32_t> sizes, std::uint32_t capacity);

}  // namespace sprat::io
