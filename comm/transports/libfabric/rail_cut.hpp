// Which rail carries a message, and how a long one is cut over all of them.
//
// Both ends compute the same cut from the length alone, so no piece says that it is one. A message
// of less than `least_cut` bytes travels whole on its home rail; a longer one is as many pieces as
// there are rails, and its first piece has at least `least_cut` bytes. So the length of what comes
// on the home rail tells a message that is whole from one that is not, whatever was expected.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/transports/transport.hpp"

namespace sprat::comm::libfabric {

/// Over two rails the shortest equal pieces have 32 KiB, which occupy a wire of 100 Gbit/s for as
/// long as a message takes to be started.
inline constexpr std::size_t least_cut = exact_bytes;

/// The rail of a message's first piece; piece k is on the k-th rail after it, beginning again with
/// the first. Consecutive tags take turns. Where they begin differs from pair to pair, and between
/// tags that are equal in their lowest 14 bits.
std::size_t home_rail(int from, int to, std::uint64_t tag, std::size_t rails);

/// A part of a message.
struct Piece {
  std::size_t offset = 0, bytes = 0;

  bool operator==(const Piece&) const = default;
};

/// Pure. Piece `index` of `rails` of a message of at least `least_cut` bytes. Pieces are as long as
/// each other where the first is longer than `least_cut`; some may be empty. A piece of a shorter
/// message is never longer than the same of a longer one.
Piece piece_of(std::size_t bytes, std::size_t rails, std::size_t index);

}  // namespace sprat::comm::libfabric
