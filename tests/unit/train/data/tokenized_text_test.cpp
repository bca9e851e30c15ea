// A text as tokens: the same whatever they take, and back.
#include "train/data/tokenized_text.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/io/tokenizer/small_tokenizer.hpp"
#include "tests/unit/train/small_text.hpp"

namespace sprat::train {
namespace {

class TokenizedTexts : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  /// Of 258 tokens and, beyond those, words that no text has.
  Tokenizer tokenizer(int more = 0) const {
    nlohmann::json root = io::small_tokenizer({{"l", "i"}});
    for (int word = 0; word < more; ++word) {
      root["model"]["vocab"]["\u0120unheard" + std::to_string(word)] = 258 + word;
    }
    return read_tokenizer(write("tokenizer.json", root.dump()));
  }
  static std::vector<std::int32_t> all(const TokenizedText& text) {
    std::vector<std::int32_t> tokens;
    text.copy(0, text.size(), tokens);
    return tokens;
  }

  const TemporaryFolder folder_;
};

TEST_F(TokenizedTexts, bytes_are_tokens) {
  const TokenizedText text(std::vector<std::uint8_t>{'a', 0, 255});
  EXPECT_EQ(all(text), (std::vector<std::int32_t>{'a', 0, 255}));
  EXPECT_EQ(text.codec().encode("b\xff"), (std::vector<std::int32_t>{'b', 255}));
  EXPECT_EQ(text.codec().decode(std::vector<std::int32_t>{'c', 255}), "c\xff");
  EXPECT_EQ(text.codec().vocabulary(), 256);
  EXPECT_EQ(text.codec().description(), "bytes");
  EXPECT_EQ(text.held_bytes(), 3u);
}

TEST_F(TokenizedTexts, files_become_the_tokens_of_the_whole_text) {
  write_small_text(folder_ / "a");
  const std::string b = write("b", "li li");
  std::vector<std::uint8_t> bytes = read_text({folder_ / "a", b});
  const std::vector<std::int32_t> tokens =
      tokenizer().encode(std::string(bytes.begin(), bytes.end()));
  const TokenizedText whole(bytes);
  struct Case {
    int more;
    std::size_t token_bytes;
  };
  for (const auto& [more, token_bytes] : {Case{0, 2}, Case{65536 - 258, 2}, Case{65537 - 258, 4}}) {
    const TokenizedText text(tokenizer(more), {folder_ / "a", b});
    EXPECT_EQ(all(text), tokens) << more;
    EXPECT_EQ(text.codec().vocabulary(), 258 + more);
    EXPECT_EQ(text.held_bytes(), token_bytes * tokens.size());
    EXPECT_EQ(text.text_bytes(), bytes.size());
    EXPECT_EQ(text.checksum(), whole.checksum()) << "of the text, whatever the tokens";
    EXPECT_EQ(text.codec().decode(tokens), std::string(bytes.begin(), bytes.end()));
  }
}

TEST_F(TokenizedTexts, a_part_is_copied_from_anywhere) {
  const TokenizedText text(tokenizer(), {write("a", "ab li cd")});
  std::vector<std::int32_t> tokens = {7};
  text.copy(2, 3, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{7, ' ', 256, ' '}));
}

TEST_F(TokenizedTexts, pieces_are_the_text) {
  std::string long_text;
  for (int line = 0; line < 20'000; ++line) {
    long_text += "line " + std::to_string(line) + "\n";
  }
  const TokenizedText text(tokenizer(), {write("a", long_text)});
  std::string joined;
  int pieces = 0;
  text.for_each_piece(1, text.size() - 1, [&](std::string_view piece) {
    joined += piece;
    ++pieces;
  });
  EXPECT_EQ(joined, long_text.substr(2, long_text.size() - 3)) << "li is one token";
  EXPECT_GT(pieces, 1);
}

TEST_F(TokenizedTexts, who_waits_is_told_how_far_it_is) {
  const std::string path = write("a", std::string(1'000'000, '\n'));
  std::vector<std::uint64_t> bytes;
  const TokenizedText text(tokenizer(), {path}, [&](const TokenizedText& so_far) {
    bytes.push_back(so_far.text_bytes());
  });
  EXPECT_GT(bytes.size(), 1u);
  EXPECT_EQ(bytes.back(), 1'000'000u);
}

TEST_F(TokenizedTexts, what_is_no_utf8_is_refused) {
  EXPECT_EQ(message_of([&] { TokenizedText(tokenizer(), {write("a", "li \xff")}); }),
            "the text is no UTF-8 at byte 3; convert it, as by iconv -t UTF-8");
}

}  // namespace
}  // namespace sprat::train
