#include "device/chunks.hpp"

#include <algorithm>

namespace sprat::device {
namespace {

/// Chunks of fewer elements would cost more in calls than they gain by overlap.
constexpr std::size_t fewest_elements = 1024;
/// Chunks begin where vectors do.
constexpr std::size_t granule = 64;

}  // namespace

Chunks::Chunks(const CollectiveShape& shape, std::size_t chunk_bytes)
    : shape_(shape), length_(shape.count) {
  const std::size_t in = shape.in.blocks * shape.in.size;
  const std::size_t out = shape.out.blocks * shape.out.size;
  const std::size_t each = shape.cut_size > 0   ? shape.cut_size
                           : shape.one_stand_in ? std::max(in, out)
                                                : in + out;
  if (each == 0 || shape.count <= std::max(chunk_bytes / each, fewest_elements)) {
    return;
  }
  const std::size_t most = std::max(chunk_bytes / each, fewest_elements);
  // Of equal length, lest a short one at the end waits alone for a whole round between ranks.
  const std::size_t wanted = (shape.count + most - 1) / most;
  length_ = (shape.count + wanted - 1) / wanted;
  length_ = (length_ + granule - 1) / granule * granule;
  chunks_ = (shape.count + length_ - 1) / length_;
}

Chunk Chunks::operator[](std::size_t index) const noexcept {
  const std::size_t first = index * length_;
  return {first, std::min(length_, shape_.count - first)};
}

ChunkMemory Chunks::memory(const Chunk& chunk) const noexcept {
  const std::size_t in = aligned(shape_.in.blocks * shape_.in.size * chunk.count);
  const std::size_t out = aligned(shape_.out.blocks * shape_.out.size * chunk.count);
  return shape_.one_stand_in ? ChunkMemory{0, 0, std::max(in, out)} : ChunkMemory{0, in, in + out};
}

}  // namespace sprat::device
