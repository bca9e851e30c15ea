// What formats read through gives the file's bytes, whatever is asked for.
#include "io/dataset/streamed_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/io/dataset/written.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

TEST(StreamedFiles, give_the_bytes_of_the_file_in_any_order) {
  const TemporaryFolder folder;
  std::mt19937_64 random(11);
  std::string bytes(9'000'000, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  write(folder / "file", bytes);
  StreamedFile file(folder / "file");
  std::uint64_t offset = 0;
  std::string piece;
  for (int round = 0; round < 3000; ++round) {
    // Steps of a header, of a window, back, and far ahead.
    const std::uint64_t most = round % 7 == 0 ? 300'000 : 600;
    const std::uint64_t step = round % 50 == 0 ? random() : random() % 3000;
    offset = (offset + step) % bytes.size();
    piece.resize(std::min<std::uint64_t>(random() % most, bytes.size() - offset));
    file.read(offset, std::as_writable_bytes(std::span(piece)));
    ASSERT_EQ(piece, bytes.substr(offset, piece.size())) << offset;
  }
}

TEST(StreamedFiles, read_nothing_beyond_their_end) {
  const TemporaryFolder folder;
  write(folder / "file", "abc");
  StreamedFile file(folder / "file");
  std::string piece(2, '\0');
  const auto read_at = [&](std::uint64_t offset) {
    return complaint_about([&] { file.read(offset, std::as_writable_bytes(std::span(piece))); });
  };
  EXPECT_EQ(read_at(1), "");
  EXPECT_THAT(read_at(2), HasSubstr("ends at byte 3"));
  EXPECT_THAT(read_at(~std::uint64_t{0}), HasSubstr("ends at byte 3"));
}

TEST(StreamedFiles, that_shrink_while_they_are_read_say_so) {
  const TemporaryFolder folder;
  write(folder / "file", std::string(100'000, 'x'));
  StreamedFile file(folder / "file");
  std::filesystem::resize_file(folder / "file", 10);
  std::string piece(100, '\0');
  EXPECT_THAT(complaint_about([&] { file.read(50, std::as_writable_bytes(std::span(piece))); }),
              HasSubstr("ends at byte"));
  EXPECT_THAT(complaint_about([&] { file.require_unchanged(); }), HasSubstr("changed while"));
}

TEST(StreamedFiles, note_what_was_read_beside_them) {
  const TemporaryFolder folder;
  write(folder / "a.bin", "a");
  write(folder / "a.idx", "bc");
  StreamedFile file(folder / "a.bin");
  EXPECT_EQ(file.beside("none"), nullptr);
  EXPECT_EQ(file.beside("a.idx")->bytes(), 2u);
  EXPECT_EQ(file.beside("a.idx")->bytes(), 2u);
  ASSERT_EQ(file.companions().size(), 1u);
  EXPECT_EQ(file.companions()[0].name, "a.idx");
  EXPECT_EQ(file.companions()[0].stamp.bytes, 2u);
}

}  // namespace
}  // namespace sprat::io
