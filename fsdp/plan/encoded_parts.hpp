// How numbers that travel in encoded blocks are dealt among the ranks of an axis, and what room
// their exchange takes.
#pragma once

#include <cstddef>
#include <vector>

namespace sprat::fsdp {

/// `count` numbers cut into as many parts of whole blocks as there are ranks, which differ by at
/// most one block. A pure function of both, so every rank knows all parts.
class EncodedParts {
 public:
  EncodedParts(std::size_t count, int ranks) : count_(count), ranks_(ranks) {}

  int ranks() const { return ranks_; }
  std::size_t offset(int rank) const;
  std::size_t count(int rank) const { return offset(rank + 1) - offset(rank); }
  std::size_t bytes(int rank) const;
  /// Of all parts, one after the other.
  std::size_t bytes() const;
  /// By rank.
  std::vector<std::size_t> all_bytes() const;
  /// The largest part.
  std::size_t most() const;
  /// Room for what a rank sends and receives to sum its part: all parts of its own numbers, and its
  /// part of everybody's, if that is the largest.
  std::size_t exchange_bytes() const;

 private:
  std::size_t count_;
  int ranks_;
};

}  // namespace sprat::fsdp
