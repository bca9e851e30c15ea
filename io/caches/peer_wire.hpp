// What hosts that share blocks tell each other: a header of 96 bytes, and a block's bytes behind
// it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "io/caches/block.hpp"

namespace sprat::io {

inline constexpr std::size_t peer_header_bytes = 96;

enum class PeerVerb : std::uint32_t {
  ask,     ///< Give me these bytes of that block.
  have,    ///< Here they are.
  absent,  ///< I do not have them.
  busy,    ///< I serve others; read the file.
  give,    ///< You own this block, I have read it, keep it. Has the whole block.
};

struct PeerHeader {
  PeerVerb verb = PeerVerb::ask;
  std::uint64_t number = 0;  ///< Of the asker's; an answer repeats it.
  BlockKey key = {};
  std::uint32_t offset = 0;    ///< In the block.
  std::uint32_t bytes = 0;     ///< Asked for, or behind this header.
  std::uint64_t checksum = 0;  ///< XXH3-64 of the bytes behind this header.

  std::size_t body_bytes() const {
    return verb == PeerVerb::have || verb == PeerVerb::give ? bytes : 0;
  }
  friend bool operator==(const PeerHeader&, const PeerHeader&) = default;
};

std::array<std::byte, peer_header_bytes> encode_peer_header(const PeerHeader& header);
/// Nothing if the bytes are no header: of another length or version, damaged, or about bytes that
/// no block has.
std::optional<PeerHeader> decode_peer_header(std::span<const std::byte> bytes);
/// What PeerHeader::checksum is to be.
std::uint64_t checksum_of_body(std::span<const std::byte> body);

}  // namespace sprat::io
