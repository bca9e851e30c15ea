// What goes through a stream between two ranks: frames, each a header of fixed length and for some
// kinds bytes behind it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sprat::comm::sockets {

enum class StreamFrameKind : std::uint8_t {
  message = 1,   ///< A whole message; its bytes follow.
  scatter = 2,   ///< A message whose bytes come in pieces, without being asked for.
  announce = 3,  ///< A message whose pieces come once they are granted.
  grant = 4,     ///< Send the pieces of this message.
  refuse = 5,    ///< This message does not fit into its receive: do not send it.
  withdraw = 6,  ///< No more pieces of this message come than have been begun: so many bytes.
  piece = 7,     ///< Bytes of a message, which follow.
  credit = 8,    ///< So many bytes that came unasked have found their receives.
  expect = 9,    ///< A receive of this tag waits with room for so many bytes.
  expected = 10  ///< A message whose pieces come at once, to a receive that was told of.
};

struct StreamFrame {
  StreamFrameKind kind = StreamFrameKind::message;
  /// Of the message, but for kinds message and credit. Of a receive: messages that came before it.
  std::uint32_t id = 0;
  std::uint64_t tag = 0;   ///< Of the message or receive.
  std::uint64_t from = 0;  ///< Of a piece: where its bytes begin in the message.
  std::uint64_t bytes = 0;

  bool operator==(const StreamFrame&) const = default;
  /// How many bytes follow the header.
  std::size_t body_bytes() const {
    const bool has_body = kind == StreamFrameKind::message || kind == StreamFrameKind::piece;
    return has_body ? static_cast<std::size_t>(bytes) : 0;
  }
};

inline constexpr std::size_t frame_bytes = 24;
using FrameHeader = std::array<std::byte, frame_bytes>;

/// A message of more bytes is announced and asked for by its receive, or expected by it.
inline constexpr std::size_t most_unasked = std::size_t{1} << 20;
/// Bounds how long a message that is sent next waits for what is on its way.
inline constexpr std::size_t most_piece = std::size_t{1} << 20;
/// No message is longer.
inline constexpr std::uint64_t most_message = std::uint64_t{1} << 48;

FrameHeader encode(const StreamFrame& frame);
/// Nothing if the bytes are no header, or one that no rank sends.
std::optional<StreamFrame> decode(const FrameHeader& header);

/// A header that comes in parts.
class FrameReader {
 public:
  bool whole() const { return filled_ == frame_bytes; }
  const FrameHeader& header() const { return header_; }
  /// How many of these bytes belong to it.
  std::size_t take(std::span<const std::byte> bytes) noexcept;
  void clear() { filled_ = 0; }

 private:
  FrameHeader header_{};
  std::size_t filled_ = 0;
};

}  // namespace sprat::comm::sockets
