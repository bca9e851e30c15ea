// What of a call is digested, and in which pieces: pure, and the same whatever carried the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/plan/problem.hpp"

namespace sprat::collectives::digests {

/// A buffer is digested in pieces of so many bytes, the last may be shorter. Fixed, so that digests
/// depend on a buffer's bytes alone: not on windows, transports, hosts or how many ranks there are.
inline constexpr std::size_t chunk_bytes = std::size_t{64} << 10;

/// An empty buffer has none.
constexpr std::size_t chunks_of(std::size_t bytes) {
  return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

/// XXH3 of chunk `index` of a buffer.
std::uint64_t digest_of_chunk(std::span<const std::byte> buffer, std::size_t index);
/// Of two differing sequences of digests, or of calls, two numbers that surely differ.
std::uint64_t fold(std::span<const std::uint64_t> digests, std::uint64_t seed);

/// What this rank gives to a call, and what it gets, in elements: 0 where it gives or gets nothing.
struct Extents {
  std::size_t input = 0, result = 0;
  bool operator==(const Extents&) const = default;
};
Extents extents_of(const Problem& problem);

/// Every rank of the communicator gets the same result, bit for bit.
bool is_replicated(Collective collective) noexcept;

}  // namespace sprat::collectives::digests
