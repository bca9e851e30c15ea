#include "collectives/kernels/canonical_tree.hpp"

#include <algorithm>
#include <bit>

namespace sprat::collectives {

int split_point(RankRange range) {
  const auto below = static_cast<unsigned>(range.size() - 1);
  return range.first + static_cast<int>(std::bit_floor(below));
}

int split_point(RankRange node, RankRange first) { return std::max(split_point(node), first.last); }

}  // namespace sprat::collectives
