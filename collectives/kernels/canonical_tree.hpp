// The order in which contributions of ranks are joined: one tree, whatever ranks share a host.
//
// Sums of floats depend on their order. This one depends on the number of ranks alone, so the same
// call has the same bits on any placement, by any algorithm.
#pragma once

namespace sprat::collectives {

/// Consecutive ranks [first, last).
struct RankRange {
  int first = 0, last = 0;
  int size() const { return last - first; }
  bool operator==(const RankRange&) const = default;
};

/// The canonical tree: tree(first, last) splits at the largest power of two below its size.
int split_point(RankRange range);
/// Where a node of a reduction splits whose first term covers `first`, not all of it: there, or
/// where that term ends if it reaches further, as no term of a canonical tree does.
int split_point(RankRange node, RankRange first);

}  // namespace sprat::collectives
