// Headers are checked field by field: whoever sends what no rank sends is not understood at all.
#include "comm/transports/sockets/stream_frame.hpp"

#include <algorithm>
#include <bit>

#include "comm/transports/transport.hpp"

namespace sprat::comm::sockets {
namespace {

/// Tag and place share a field: no frame has both. Hosts of one job have the same byte order, which
/// the greeting has told.
struct Fields {
  std::uint8_t kind = 0, reserved[3] = {};
  std::uint32_t id = 0;
  std::uint64_t tag_or_from = 0, bytes = 0;
};
static_assert(sizeof(Fields) == frame_bytes);

bool is_sound(const StreamFrame& frame) {
  const bool has_tag = frame.tag >> tag_bits == 0;
  switch (frame.kind) {
    case StreamFrameKind::message:
      return has_tag && frame.id == 0 && frame.bytes <= most_unasked;
    case StreamFrameKind::scatter:
      return has_tag && frame.bytes > 0 && frame.bytes <= most_unasked;
    case StreamFrameKind::announce:
      return has_tag && frame.bytes <= most_message;
    case StreamFrameKind::expect:
    case StreamFrameKind::expected:
      return has_tag && frame.bytes > 0 && frame.bytes <= most_message;
    case StreamFrameKind::grant:
    case StreamFrameKind::refuse:
      return frame.tag == 0 && frame.bytes == 0;
    case StreamFrameKind::withdraw:
      return frame.tag == 0 && frame.bytes <= most_message;
    case StreamFrameKind::piece:
      return frame.from <= most_message && frame.bytes > 0 && frame.bytes <= most_piece;
    case StreamFrameKind::credit:
      return frame.tag == 0 && frame.id == 0 && frame.bytes > 0;
  }
  return false;
}

}  // namespace

FrameHeader encode(const StreamFrame& frame) {
  Fields fields;
  fields.kind = static_cast<std::uint8_t>(frame.kind);
  fields.id = frame.id;
  fields.tag_or_from = frame.kind == StreamFrameKind::piece ? frame.from : frame.tag;
  fields.bytes = frame.bytes;
  return std::bit_cast<FrameHeader>(fields);
}

std::optional<StreamFrame> decode(const FrameHeader& header) {
  const auto fields = std::bit_cast<Fields>(header);
  StreamFrame frame{.kind = static_cast<StreamFrameKind>(fields.kind),
                    .id = fields.id,
                    .tag = fields.tag_or_from,
                    .from = 0,
                    .bytes = fields.bytes};
  if (frame.kind == StreamFrameKind::piece) {
    frame.from = frame.tag;
    frame.tag = 0;
  }
  const bool clear = fields.reserved[0] == 0 && fields.reserved[1] == 0 && fields.reserved[2] == 0;
  return clear && is_sound(frame) ? std::optional(frame) : std::nullopt;
}

std::size_t FrameReader::take(std::span<const std::byte> bytes) noexcept {
  const std::size_t taken = std::min(bytes.size(), frame_bytes - filled_);
  std::copy_n(bytes.data(), taken, header_.data() + filled_);
  filled_ += taken;
  return taken;
}

}  // namespace sprat::comm::sockets
