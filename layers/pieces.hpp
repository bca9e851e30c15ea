// Sums in pieces that are joined as a tree, so that a rank that has some of the pieces has a
// subtree, and its sum is a node of the whole one.
#pragma once

#include <bit>
#include <cstdint>

namespace sprat::layers {

/// Where piece `piece` of `pieces` begins: for powers of two, where halving again and again cuts.
constexpr int piece_begin(int extent, int pieces, int piece) {
  return static_cast<int>(std::int64_t{extent} * piece / pieces);
}

/// How many sums are there at a time at most while pieces are joined.
constexpr int sums_at_a_time(int pieces) { return std::bit_width(static_cast<unsigned>(pieces)); }

/// After piece `piece` is made, how many times the last sum is added to the one before it. Two of a
/// size become one, as a counter carries its ones; after the last piece all do.
constexpr int joins_after(int piece, int pieces) {
  const auto number = static_cast<unsigned>(piece);
  const bool is_last = piece + 1 == pieces;
  return is_last ? std::popcount(number) : std::countr_one(number);
}

}  // namespace sprat::layers
