// Data whose every collective has an exactly known result, made without the library's kernels.
//
// A buffer's element i is pattern element i mod `period`, so filling and checking are memory copies
// and comparisons of every byte. The period is prime: no block or chunk size is a multiple of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sprat/reduction.hpp"

namespace sprat::cli {

/// A period of elements as bytes.
class Pattern {
 public:
  static constexpr std::size_t period = 16381;

  Pattern(std::vector<std::byte> bytes, std::size_t element_bytes);
  /// to <- the `count` elements from number `first` on.
  void fill(std::byte* to, std::size_t first, std::size_t count) const;
  /// How many of `count` elements differ in any bit from those that fill() would write.
  std::uint64_t wrong(const std::byte* data, std::size_t first, std::size_t count) const;

 private:
  std::vector<std::byte> bytes_;
  std::size_t element_bytes_;
};

/// Random bits of `rank`, for collectives that only move data.
Pattern bits_of(DType dtype, int rank);
/// What `rank` contributes to a reduction that takes(op, dtype): small integers, powers of two or,
/// for operations on bits, any. The result is exact in any order, but for the one rounding of 8-bit
/// floats, and never passes the tenth power of two.
Pattern contribution_of(DType dtype, ReduceOp op, int ranks, int rank);
/// The reduction over all ranks of contribution_of(): integers wrap, avg truncates toward zero.
Pattern reduction_of(DType dtype, ReduceOp op, int ranks);

}  // namespace sprat::cli
