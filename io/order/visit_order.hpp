// In which order the elements of a row are visited: as they stand, permuted, or permuted in chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/order/epoch_cache.hpp"
#include "io/order/sampling.hpp"

namespace sprat::io {

/// Where chunks begin: ascending from 0, with the number of elements behind the last. A chunk may
/// be empty.
using ChunkBegins = std::vector<std::uint64_t>;

/// Chunks of so many of `count` elements; the last may be shorter. Throws Error{invalid_argument}
/// if there would be more than 16 Mi.
ChunkBegins equal_chunks(std::uint64_t count, std::uint64_t chunk);
/// A chunk for each file.
ChunkBegins file_chunks(const RecordTable& table);

struct VisitOptions {
  Shuffle shuffle = Shuffle::full;
  std::uint64_t seed = 0;
  std::uint64_t count = 0;  ///< Elements, at least one.
  ChunkBegins chunks = {};  ///< Of Shuffle::chunks.
  std::uint64_t mixed_chunks = 1;
};

/// Every element once an epoch. Any thread may ask, several at once.
///
/// Two levels (Shuffle::chunks): the chunks are permuted, and then the elements of each
/// `mixed_chunks` of them that have come to stand together, so that readers find what is next in
/// few places. Full: Permutation(seed, epoch, count), as SampleOrder has it.
///
/// Cost: O(1); two levels O(log chunks), and a table of 8 B a chunk for each epoch.
class VisitOrder {
 public:
  explicit VisitOrder(VisitOptions options);
  /// index < count.
  std::uint64_t operator()(std::uint64_t epoch, std::uint64_t index) const;

 private:
  std::uint64_t in_chunks(std::uint64_t epoch, std::uint64_t index) const;

  struct Levels {
    Levels(ChunkBegins all_chunks, std::uint64_t order_seed, std::uint64_t mixed);

    const ChunkBegins chunks;
    const std::uint64_t seed, mixed_chunks;
    EpochCache<ChunkBegins> permuted;  // where the chunk at each place of an epoch's order begins
  };

  Shuffle shuffle_;
  std::uint64_t seed_, count_;
  std::unique_ptr<const Levels> levels_;  // of Shuffle::chunks
};

}  // namespace sprat::io
