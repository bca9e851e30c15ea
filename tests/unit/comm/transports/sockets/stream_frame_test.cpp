// Frames of streams, there and back, and what is none.
#include "comm/transports/sockets/stream_frame.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "comm/transports/transport.hpp"

namespace sprat::comm::sockets {
namespace {

using Kind = StreamFrameKind;
constexpr std::uint64_t longest_tag = (std::uint64_t{1} << tag_bits) - 1;

const std::vector<StreamFrame> sound = {
    {.kind = Kind::message, .id = 0, .tag = 0, .from = 0, .bytes = 0},
    {.kind = Kind::message, .id = 0, .tag = longest_tag, .from = 0, .bytes = most_unasked},
    {.kind = Kind::scatter, .id = 7, .tag = 1, .from = 0, .bytes = 1},
    {.kind = Kind::scatter, .id = 7, .tag = 1, .from = 0, .bytes = most_unasked},
    {.kind = Kind::announce, .id = ~0u, .tag = 1, .from = 0, .bytes = most_message},
    {.kind = Kind::announce, .id = 0, .tag = 1, .from = 0, .bytes = 0},
    {.kind = Kind::grant, .id = 9, .tag = 0, .from = 0, .bytes = 0},
    {.kind = Kind::refuse, .id = 9, .tag = 0, .from = 0, .bytes = 0},
    {.kind = Kind::withdraw, .id = 9, .tag = 0, .from = 0, .bytes = 12},
    {.kind = Kind::piece, .id = 9, .tag = 0, .from = most_message, .bytes = most_piece},
    {.kind = Kind::credit, .id = 0, .tag = 0, .from = 0, .bytes = 1},
    {.kind = Kind::expect, .id = ~0u, .tag = longest_tag, .from = 0, .bytes = most_message},
    {.kind = Kind::expected, .id = 0, .tag = 1, .from = 0, .bytes = 1},
};

TEST(StreamFrames, come_back_as_they_were) {
  for (const StreamFrame& frame : sound) {
    const auto back = decode(encode(frame));
    ASSERT_TRUE(back) << static_cast<int>(frame.kind);
    EXPECT_EQ(*back, frame) << static_cast<int>(frame.kind);
  }
}

TEST(StreamFrames, that_no_rank_sends_are_none) {
  const std::vector<StreamFrame> wrong = {
      {.kind = static_cast<Kind>(0)},
      {.kind = static_cast<Kind>(11)},
      {.kind = Kind::message, .id = 1},
      {.kind = Kind::message, .id = 0, .tag = longest_tag + 1},
      {.kind = Kind::message, .id = 0, .tag = 0, .from = 0, .bytes = most_unasked + 1},
      {.kind = Kind::scatter, .id = 0, .tag = 0, .from = 0, .bytes = 0},
      {.kind = Kind::scatter, .id = 0, .tag = 0, .from = 0, .bytes = most_unasked + 1},
      {.kind = Kind::announce, .id = 0, .tag = longest_tag + 1},
      {.kind = Kind::announce, .id = 0, .tag = 0, .from = 0, .bytes = most_message + 1},
      {.kind = Kind::grant, .id = 0, .tag = 1},
      {.kind = Kind::refuse, .id = 0, .tag = 0, .from = 0, .bytes = 1},
      {.kind = Kind::withdraw, .id = 0, .tag = 0, .from = 0, .bytes = most_message + 1},
      {.kind = Kind::piece, .id = 0, .tag = 0, .from = most_message + 1, .bytes = 1},
      {.kind = Kind::piece, .id = 0, .tag = 0, .from = 0, .bytes = 0},
      {.kind = Kind::piece, .id = 0, .tag = 0, .from = 0, .bytes = most_piece + 1},
      {.kind = Kind::credit, .id = 1, .tag = 0, .from = 0, .bytes = 1},
      {.kind = Kind::credit, .id = 0, .tag = 0, .from = 0, .bytes = 0},
      {.kind = Kind::expect, .id = 0, .tag = longest_tag + 1, .from = 0, .bytes = 1},
      {.kind = Kind::expect, .id = 0, .tag = 1, .from = 0, .bytes = 0},
      {.kind = Kind::expected, .id = 0, .tag = 1, .from = 0, .bytes = 0},
      {.kind = Kind::expected, .id = 0, .tag = 1, .from = 0, .bytes = most_message + 1},
  };
  for (std::size_t at = 0; at < wrong.size(); ++at) {
    EXPECT_FALSE(decode(encode(wrong[at]))) << "case " << at;
  }
  FrameHeader reserved = encode(sound.front());
  for (const std::size_t at : {1u, 2u, 3u}) {
    reserved[at] = std::byte{1};
    EXPECT_FALSE(decode(reserved)) << "byte " << at;
    reserved[at] = std::byte{0};
  }
}

TEST(StreamFrames, are_read_in_any_parts) {
  const FrameHeader header = encode(sound[2]);
  for (std::size_t cut = 0; cut <= frame_bytes; ++cut) {
    FrameReader reader;
    EXPECT_EQ(reader.take(std::span(header).first(cut)), cut);
    EXPECT_EQ(reader.whole(), cut == frame_bytes);
    std::vector<std::byte> rest(header.begin() + static_cast<std::ptrdiff_t>(cut), header.end());
    rest.resize(rest.size() + 5);  // what follows is not its own
    EXPECT_EQ(reader.take(rest), frame_bytes - cut);
    ASSERT_TRUE(reader.whole());
    EXPECT_EQ(reader.header(), header);
    reader.clear();
    EXPECT_FALSE(reader.whole());
  }
}

}  // namespace
}  // namespace sprat::comm::sockets
