// How a sequence is dealt to ranks: in 2 C chunks, zigzag, so that all have as much to compute.
#pragma once

#include <array>
#include <vector>

namespace sprat::mp::context {

/// Chunks of one length, in the order of the sequence; rank r of C has r and 2 C - 1 - r. Under the
/// causal diagonal it then computes r + 1 and 2 C - r pairs of chunks: 2 C + 1 on every rank.
constexpr int chunk_count(int ranks) { return 2 * ranks; }
constexpr std::array<int, 2> chunks_of(int rank, int ranks) {
  return {rank, chunk_count(ranks) - 1 - rank};
}
constexpr int owner_of(int chunk, int ranks) {
  return chunk < ranks ? chunk : chunk_count(ranks) - 1 - chunk;
}
/// Positions of a chunk. Throws Error{invalid_argument} with the nearest length that is dealt
/// evenly.
int chunk_length(int length, int ranks);

/// The ranks beside its owner that need the keys of a chunk, the first 0: those whose later chunk
/// is not before it.
std::vector<int> needers_of(int chunk, int ranks);

/// `ranks` in the order in which one hands over to the next; where a rank stands in it, and whom it
/// has before and behind it: none is -1.
struct Route {
  std::vector<int> ranks;
  int before(int rank) const;
  int behind(int rank) const;
};

/// Upwards from rank 0: whoever is ahead in the order of keys hands over to who is behind it.
Route rising_route(int chunk, int ranks);
/// From the owner's successor around the ring, past whoever does not need the chunk.
Route ring_route(int chunk, int ranks);

}  // namespace sprat::mp::context
