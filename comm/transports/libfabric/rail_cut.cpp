// Which rail carries a message, and how a long one is cut over all of them.
#include "comm/transports/libfabric/rail_cut.hpp"

#include <algorithm>

#include "comm/base/hash.hpp"

namespace sprat::comm::libfabric {

namespace {

/// The chunks of one collective differ in these bits of their tags alone.
constexpr int chunk_bits = 14;

/// Part `index` of `bytes` in `parts` parts, the first ones a byte longer where it does not divide.
Piece share(std::size_t bytes, std::size_t parts, std::size_t index) {
  const std::size_t least = bytes / parts, longer = bytes % parts;
  return {index * least + std::min(index, longer), least + (index < longer ? 1 : 0)};
}

}  // namespace

std::size_t home_rail(int from, int to, std::uint64_t tag, std::size_t rails) {
  const auto pair = static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 |
                    static_cast<std::uint32_t>(to);
  const std::uint64_t begin = mix_bits(mix_bits(pair + golden_step) + (tag >> chunk_bits));
  return (begin % rails + tag) % rails;
}

Piece piece_of(std::size_t bytes, std::size_t rails, std::size_t index) {
  if (bytes / rails >= least_cut) {
    return share(bytes, rails, index);
  }
  if (index == 0) {
    return {0, least_cut};
  }
  const Piece other = share(bytes - least_cut, rails - 1, index - 1);
  return {least_cut + other.offset, other.bytes};
}

}  // namespace sprat::comm::libfabric
