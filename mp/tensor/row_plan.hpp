// Which rows of a micro-batch a rank of a tensor parallel group has, and in which chunks they
// travel between ranks. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "sprat/tensor.hpp"

namespace sprat::tensor {

/// Whether ranks have own rows; else each has all.
inline bool rows_are_dealt(const Parallelism& how) {
  return how.sequence_parallel && how.degree > 1;
}
/// Elements of so many rows, as a size and as a distance.
inline std::size_t row_elements(int rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}
inline std::ptrdiff_t row_offset(int rows, int width) { return std::ptrdiff_t{rows} * width; }

/// Rows that travel together.
struct RowChunk {
  /// By rank, of its own rows, where those are dealt to ranks; else a single piece.
  std::vector<Part> pieces;
  int rows = 0;  ///< Of all pieces.
};

struct RowPlan {
  bool dealt = false;     ///< rows_are_dealt().
  std::vector<Part> own;  ///< By rank.
  std::vector<RowChunk> chunks;
  int most_rows = 0;  ///< Of a chunk.
};
/// `width`: elements of a row that travels.
RowPlan plan_rows(const Parallelism& how, int rows, int width);

/// Rows that follow each other, and where the first of them is in a chunk whose pieces lie one
/// behind the other.
struct RowRun {
  Part rows;
  int at = 0;
  friend bool operator==(const RowRun&, const RowRun&) = default;
};
/// The fewest runs that the chunk's pieces make; empty ones make none.
std::vector<RowRun> runs_of(const RowChunk& chunk);
/// Without the piece of one rank.
std::vector<RowRun> runs_of_others(const RowChunk& chunk, int rank);
/// Where a rank's piece begins in the chunk.
int place_in(const RowChunk& chunk, int rank);

/// Chunks that are under way at a time: one travels while the next is computed.
inline constexpr int chunks_under_way = 2;
/// Elements of memory for those; none on one rank.
std::size_t slots_count(const Parallelism& how, int rows, int width);
/// For any micro-batch of at most so many rows: one of fewer rows may have larger chunks.
std::size_t most_slots_count(const Parallelism& how, int rows, int width);

}  // namespace sprat::tensor
