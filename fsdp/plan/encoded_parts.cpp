#include "fsdp/plan/encoded_parts.hpp"

#include <algorithm>

#include "sprat/wire.hpp"

namespace sprat::fsdp {

// Blocks are never cut: a block's numbers share their scale wherever they are summed.
std::size_t EncodedParts::offset(int rank) const {
  const std::size_t blocks = (count_ + wire_block_elements - 1) / wire_block_elements;
  const std::size_t first =
      blocks * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks_);
  return std::min(first * wire_block_elements, count_);
}

std::size_t EncodedParts::bytes(int rank) const { return encoded_bytes(count(rank)); }

std::size_t EncodedParts::bytes() const { return encoded_bytes(count_); }

std::vector<std::size_t> EncodedParts::all_bytes() const {
  std::vector<std::size_t> all;
  for (int rank = 0; rank < ranks_; ++rank) {
    all.push_back(bytes(rank));
  }
  return all;
}

std::size_t EncodedParts::most() const {
  std::size_t most = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    most = std::max(most, count(rank));
  }
  return most;
}

std::size_t EncodedParts::exchange_bytes() const {
  return bytes() + static_cast<std::size_t>(ranks_) * encoded_bytes(most());
}

}  // namespace sprat::fsdp
