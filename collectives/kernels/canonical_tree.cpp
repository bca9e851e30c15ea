#include "collectives/kernels/canonical_tree.hpp"

#include <algorithm>
#include <bit>

namespace sprat::collectives {

// At the largest power of two below the size: docs/numerics.md defines the canonical order so.
int split_point(RankRange range) {
  const auto below = static_cast<unsigned>(range.size() - 1);
  return range.first + static_cast<int>(std::bit_floor(below));
}

// A first term that reaches over the middle is not taken apart: the node splits behind it.
int split_point(RankRange node, RankRange first) { return std::max(split_point(node), first.last); }

}  // namespace sprat::collectives
