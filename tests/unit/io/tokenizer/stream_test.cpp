// A text that comes in pieces has the tokens of the whole, wherever it is cut.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "io/tokenizer/cuts.hpp"
#include "sprat/io.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/io/tokenizer/small_tokenizer.hpp"

namespace sprat::token_stream_test {
namespace {

using Tokens = std::vector<std::int32_t>;

/// "\u0120" spells a space, "\u010a" a line's end.
nlohmann::json tokenizer_json(bool prefix_space) {
  nlohmann::json root = io::small_tokenizer({{"a", "b"},
                                             {"\u0120", "ab"},
                                             {"\u0120", "\u0120"},
                                             {"\u010a", "\u0120"},
                                             {"\u0120", "\u010a"},
                                             {"'", "s"}});
  root["pre_tokenizer"]["add_prefix_space"] = prefix_space;
  const int next = static_cast<int>(root["model"]["vocab"].size());
  root["added_tokens"].push_back({{"id", next}, {"content", "b a"}});
  root["added_tokens"].push_back({{"id", next + 1}, {"content", "b a ab\n"}});
  root["added_tokens"].push_back({{"id", next + 2}, {"content", "7 7"}, {"normalized", true}});
  return root;
}

class TokenStreams : public testing::Test {
 protected:
  Tokenizer tokenizer(bool prefix_space) {
    std::ofstream(folder_ / "tokenizer.json") << tokenizer_json(prefix_space).dump();
    return read_tokenizer(folder_.path());
  }
  TemporaryFolder folder_;
};

std::string some_text(std::mt19937& random, int parts) {
  static const std::vector<std::string> choices = {
      "a",      "b",      "ab",     "7",      "'s",     "'",      "!",
      "\u00e9", "\u4f60", " ",      " ",      " ",      "  ",     "\n",
      "\t",     "\r\n",   "\u00a0", "\u3000", "\u2003", "\u2014", "<|endoftext|>",
      "<|end",  "b a",    "7 7"};
  std::string text;
  for (int part = 0; part < parts; ++part) {
    text += choices[random() % choices.size()];
  }
  return text;
}

Tokens streamed(const Tokenizer& tokenizer, const std::string& text, std::size_t piece) {
  TokenStream stream(tokenizer);
  Tokens all;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const Tokens some = stream.append(std::string_view(text).substr(at, piece));
    all.insert(all.end(), some.begin(), some.end());
  }
  const Tokens rest = stream.finish();
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

TEST_F(TokenStreams, pieces_of_any_length_give_the_tokens_of_the_whole) {
  std::mt19937 random(1);
  for (const bool prefix_space : {false, true}) {
    const Tokenizer tokenizer = this->tokenizer(prefix_space);
    for (int number = 0; number < 300; ++number) {
      const std::string text = some_text(random, 40);
      const Tokens whole = tokenizer.encode(text);
      for (const std::size_t piece : {1, 2, 3, 7, 20, 1000}) {
        ASSERT_EQ(streamed(tokenizer, text, piece), whole)
            << nlohmann::json(text) << " in pieces of " << piece << ", " << prefix_space;
      }
    }
  }
}

TEST_F(TokenStreams, tokens_come_as_soon_as_a_word_has_ended) {
  const Tokenizer tokenizer = this->tokenizer(false);
  TokenStream stream(tokenizer);
  EXPECT_EQ(stream.append("ab"), Tokens{});
  EXPECT_EQ(stream.append("ab 7"), (Tokens{256, 256}));
  EXPECT_EQ(stream.append("7 ab"), (Tokens{' ', '7', '7'}));
  EXPECT_EQ(stream.append(" b"), Tokens{257});
  EXPECT_EQ(stream.append(" "), Tokens{}) << "it may become an added token";
  EXPECT_EQ(stream.finish(), (Tokens{' ', 'b', ' '}));
  EXPECT_EQ(stream.finish(), Tokens{});
}

TEST_F(TokenStreams, a_long_word_is_no_trap) {
  const Tokenizer tokenizer = this->tokenizer(false);
  TokenStream stream(tokenizer);
  const std::string piece(1 << 10, 'a');
  for (int i = 0; i < 1 << 10; ++i) {
    ASSERT_EQ(stream.append(piece), Tokens{});
  }
  EXPECT_EQ(stream.finish().size(), std::size_t{1} << 20);
}

TEST_F(TokenStreams, what_is_no_utf8_is_found_in_the_whole_text) {
  const Tokenizer tokenizer = this->tokenizer(false);
  TokenStream stream(tokenizer);
  stream.append("ab ab ");
  EXPECT_EQ(message_of([&] { stream.append("ab \xff ab"); }),
            "the text is no UTF-8 at byte 9; convert it, as by iconv -t UTF-8");
}

TEST_F(TokenStreams, cuts_are_where_a_space_follows_what_is_none) {
  struct Case {
    std::string text;
    std::size_t cut;
  };
  const std::vector<Case> cases = {
      {"", 0},           {" ", 0},       {"ab", 0},       {"ab 7", 2},        {"ab a", 0},
      {"ab ", 0},        {"ab  ", 2},    {"ab\n\nab", 2}, {"ab\u3000 ab", 0}, {"ab\u2014 ab", 0},
      {"\u3002\nab", 3}, {"ab 77 a", 5}, {"77 7", 0},     {"7 ab a", 1},      {"7 a a ", 5},
  };
  const io::TextCuts cuts(io::parse_tokenizer_json("", tokenizer_json(false).dump()));
  for (const Case& one : cases) {
    EXPECT_EQ(cuts.last(one.text), one.cut) << nlohmann::json(one.text);
  }
  const io::TextCuts prefixed(io::parse_tokenizer_json("", tokenizer_json(true).dump()));
  EXPECT_EQ(prefixed.last("ab\nab"), 0u) << "a line's end would get a space before it";
  EXPECT_EQ(prefixed.last("ab 7\nab"), 2u);
}

}  // namespace
}  // namespace sprat::token_stream_test
