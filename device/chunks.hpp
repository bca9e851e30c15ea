// How a collective on device memory is cut, so that copies and ranks work at the same time.
//
// All operands are made of blocks of `count` elements: one, or one for each rank. Element i of all
// blocks of all operands belongs together, so a cut goes through all blocks alike, and a chunk is
// a smaller collective of the same kind: bits are those of the whole.
#pragma once

#include <cstddef>

namespace sprat::device {

/// One operand as whoever has the most of it has it; ranks that lack it are cut as the others are.
struct OperandShape {
  std::size_t blocks = 0;
  std::size_t size = 0;  ///< Bytes of an element.
};

/// What all ranks know alike, and nothing else.
struct CollectiveShape {
  std::size_t count = 0;  ///< Elements of a block.
  OperandShape in, out;
  bool one_stand_in =
      false;  ///< The host's operation is in place: both lie in one piece of memory.
  /// Bytes that an element counts for in the cut, where ranks differ in what they have of it; 0:
  /// those of its operands.
  std::size_t cut_size = 0;
};

struct Chunk {
  std::size_t first = 0, count = 0;  ///< Elements of each block.
};

/// Where the operands of a chunk lie in its piece of host memory.
struct ChunkMemory {
  std::size_t in = 0, out = 0;  ///< Bytes from the piece's begin.
  std::size_t bytes = 0;
};

class Chunks {
 public:
  /// Chunks of about `chunk_bytes` of host memory each; one if that is enough for all. Pure.
  Chunks(const CollectiveShape& shape, std::size_t chunk_bytes);

  std::size_t size() const noexcept { return chunks_; }
  /// In order, without gaps. The last one is the shortest.
  Chunk operator[](std::size_t index) const noexcept;
  ChunkMemory memory(const Chunk& chunk) const noexcept;

 private:
  CollectiveShape shape_;
  std::size_t length_ = 0;  ///< Elements of a block in each chunk but the last.
  std::size_t chunks_ = 1;
};

/// Stand-ins begin at multiples of this: a line of any cache, and the granule of any vector.
inline constexpr std::size_t stand_in_alignment = 256;
constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + stand_in_alignment - 1) / stand_in_alignment * stand_in_alignment;
}

}  // namespace sprat::device
