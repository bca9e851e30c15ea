// Reading text: plain, compressed, missing, broken.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "sprat/error.hpp"
#include "sprat/io.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat {
namespace {

class Text : public testing::Test {
 protected:
  std::string plain(const std::string& name, const std::string& content) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::string compressed(const std::string& name, const std::string& content) const {
    const std::string path = folder_ / name;
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    return path;
  }
  static std::string as_string(const std::vector<std::uint8_t>& bytes) {
    return {bytes.begin(), bytes.end()};
  }
  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

std::string long_text() {
  std::string content;
  for (int line = 0; line < 40'000; ++line) {
    content += "line " + std::to_string(line) + "\n";
  }
  return content;
}

TEST_F(Text, files_come_one_after_another_plain_or_compressed) {
  const std::string content = long_text();
  const auto bytes =
      read_text({plain("a", "first\n"), compressed("b.gz", content), plain("c", "")});
  EXPECT_EQ(as_string(bytes), "first\n" + content);
}

TEST_F(Text, pieces_are_the_whole) {
  const std::string content = long_text();
  const std::vector<std::string> paths = {compressed("b.gz", content), plain("c", "last")};
  std::size_t most = 0;
  std::string joined;
  read_text(paths, [&](std::span<const std::uint8_t> piece) {
    most = std::max(most, piece.size());
    joined.append(piece.begin(), piece.end());
  });
  EXPECT_EQ(joined, content + "last");
  EXPECT_LT(most, content.size());
}

TEST_F(Text, bytes_of_every_value_survive) {
  std::string content;
  for (int value = 0; value < 256; ++value) {
    content.push_back(static_cast<char>(value));
  }
  EXPECT_EQ(as_string(read_text({plain("a", content)})), content);
  EXPECT_EQ(as_string(read_text({compressed("a.gz", content)})), content);
}

TEST_F(Text, a_missing_file_is_named) {
  const std::string path = folder_ / "absent.txt";
  try {
    read_text({path});
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST_F(Text, a_truncated_compressed_file_is_refused) {
  const std::string path = compressed("a.gz", long_text());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THROW(read_text({path}), Error);
}

TEST_F(Text, a_folder_is_refused) { EXPECT_THROW(read_text({folder_.string()}), Error); }

TEST_F(Text, is_read_from_files_alone) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder_.string(), std::string("/dev/zero")}) {
    try {
      read_text({path});
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("cannot read text file " + path + ": "))
          << error.what();
    }
  }
}

}  // namespace
}  // namespace sprat
