// One checksum covers the whole header: what is not wholly right is no header.
#include "io/caches/peer_wire.hpp"

#include <xxhash.h>

#include <bit>
#include <cstring>

namespace sprat::io {
namespace {

// A host of the other byte order sends another magic number, and gets no answer.
constexpr std::uint64_t peer_magic = 0x31524545'50435053;  // "SPCPEER1"

struct PeerFields {
  std::uint64_t magic = 0, number = 0, file_high = 0, file_low = 0, block = 0;
  std::uint32_t verb = 0, offset = 0, bytes = 0, reserved = 0;
  std::uint64_t body_checksum = 0, unused[3] = {}, checksum = 0;
};
static_assert(sizeof(PeerFields) == peer_header_bytes);

std::uint64_t peer_checksum_of(const PeerFields& fields) {
  return XXH3_64bits_withSeed(&fields, sizeof fields - sizeof fields.checksum, peer_magic);
}

}  // namespace

std::array<std::byte, peer_header_bytes> encode_peer_header(const PeerHeader& header) {
  PeerFields fields{.magic = peer_magic,
                    .number = header.number,
                    .file_high = header.key.file.high,
                    .file_low = header.key.file.low,
                    .block = header.key.block,
                    .verb = static_cast<std::uint32_t>(header.verb),
                    .offset = header.offset,
                    .bytes = header.bytes,
                    .reserved = 0,
                    .body_checksum = header.checksum,
                    .unused = {},
                    .checksum = 0};
  fields.checksum = peer_checksum_of(fields);
  return std::bit_cast<std::array<std::byte, peer_header_bytes>>(fields);
}

std::optional<PeerHeader> decode_peer_header(std::span<const std::byte> bytes) {
  if (bytes.size() != peer_header_bytes) {
    return std::nullopt;
  }
  PeerFields fields;
  std::memcpy(&fields, bytes.data(), sizeof fields);
  // Lengths are bounded before anybody makes memory for them.
  const bool valid = fields.magic == peer_magic && fields.checksum == peer_checksum_of(fields) &&
                     fields.verb <= static_cast<std::uint32_t>(PeerVerb::give) &&
                     fields.bytes > 0 && fields.bytes <= cache_block_bytes &&
                     fields.offset <= cache_block_bytes - fields.bytes;
  if (!valid) {
    return std::nullopt;
  }
  return PeerHeader{
      .verb = static_cast<PeerVerb>(fields.verb),
      .number = fields.number,
      .key = {.file = {.high = fields.file_high, .low = fields.file_low}, .block = fields.block},
      .offset = fields.offset,
      .bytes = fields.bytes,
      .checksum = fields.body_checksum};
}

std::uint64_t checksum_of_body(std::span<const std::byte> body) {
  return XXH3_64bits(body.data(), body.size());
}

}  // namespace sprat::io
