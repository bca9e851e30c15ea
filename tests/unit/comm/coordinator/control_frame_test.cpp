// Frames on the wire: they come back as they went, and garbage does no harm.
#include "comm/coordinator/control_frame.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

Blob blob(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

const std::vector<Frame> samples = {
    Hello{3, 8, {{"version", "1"}, {"SPRAT_TIMEOUT", "30"}}},
    Welcome{3, 8},
    Refusal{4, 3, "no"},
    Part{2, 60'000, "meeting", blob("abc"), 0x1234'5678'9abc'def1},
    Parts{2, {blob("a"), blob(""), blob("ccc")}},
    ControlMessage{ControlMessage::Kind::verdict, 5, 4, 7, 42, "text", blob("payload")},
    Beat{},
    PartsPlace{2, 4711, 9, 0x1234'5678'9abc, 1 << 20, 0x1234'5678'9abc'def2},
    PartsTaken{2, 0},
};

TEST(Frame, comes_back_as_it_went) {
  for (const Frame& frame : samples) {
    const Blob bytes = encode(frame);
    EXPECT_EQ(frame_bytes(std::span(bytes).first<frame_header_bytes>()),
              bytes.size() - frame_header_bytes);
    const auto back = decode(std::span(bytes).subspan(frame_header_bytes));
    ASSERT_TRUE(back) << frame.index();
    EXPECT_EQ(back->index(), frame.index());
    EXPECT_EQ(encode(*back), bytes) << frame.index();
  }
}

TEST(Frame, is_refused_when_cut_short_or_too_long) {
  for (const Frame& frame : samples) {
    Blob bytes = encode(frame);
    const auto body = std::span(bytes).subspan(frame_header_bytes);
    for (std::size_t length = 0; length < body.size(); ++length) {
      EXPECT_FALSE(decode(body.first(length))) << frame.index() << " of " << length;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(std::span(bytes).subspan(frame_header_bytes))) << frame.index();
  }
}

TEST(Frame, of_parts_comes_back_from_memory_whatever_lies_behind_it) {
  const Parts parts{5, {blob("a"), blob(""), blob("ccc")}};
  Blob bytes = encode_unpacked(parts);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_unpacked(std::span(bytes).first(length))) << length;
  }
  bytes.resize(4096);
  const auto back = decode_unpacked(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->ordinal, parts.ordinal);
  EXPECT_EQ(back->blobs, parts.blobs);
}

TEST(Frame, is_refused_with_an_error_code_that_there_is_not) {
  const int last = static_cast<int>(ErrorCode::internal);
  const auto comes_through = [](const Frame& frame) {
    const Blob bytes = encode(frame);
    return decode(std::span(bytes).subspan(frame_header_bytes)).has_value();
  };
  ControlMessage failed;
  failed.kind = ControlMessage::Kind::failed;
  for (const int code : {-1, 0, last, last + 1, 1 << 30}) {
    failed.code = code;
    EXPECT_EQ(comes_through(failed), code >= 0 && code <= last) << code;
    EXPECT_EQ(comes_through(Refusal{code, 0, ""}), code >= 0 && code <= last) << code;
  }
}

TEST(Frame, survives_garbage) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Blob bytes(random() % 64);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random() & 0xff);
    }
    if (!bytes.empty()) {
      bytes[0] = static_cast<std::byte>(random() % (std::variant_size_v<Frame> + 1));
    }
    if (const auto frame = decode(bytes)) {
      const Blob again = encode(*frame);
      EXPECT_EQ(Blob(again.begin() + frame_header_bytes, again.end()), bytes);
    }
  }
}

}  // namespace
}  // namespace sprat::comm
