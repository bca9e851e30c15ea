// Text to tokens and back.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "sprat/io.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/io/tokenizer/small_tokenizer.hpp"

namespace sprat::tokenizer_test {
namespace {

using Tokens = std::vector<std::int32_t>;

const io::SpeltMerges hello = {{"h", "e"},    {"l", "l"},          {"he", "ll"},
                               {"hell", "o"}, {"\u0120", "hello"}, {"\u00c3", "\u00a9"}};
constexpr std::int32_t he = 256, ll = 257, hell = 258, hello_ = 259, space_hello = 260,
                       e_acute = 261, end_of_text = 262;

class TokenizerFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Tokenizer tokenizer(const nlohmann::json& root) {
    write("tokenizer.json", root.dump());
    return read_tokenizer(folder_.path());
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizerFiles, text_becomes_the_tokens_that_merging_by_hand_gives) {
  const Tokenizer tokenizer = this->tokenizer(io::small_tokenizer(hello));
  struct Case {
    std::string text;
    Tokens tokens;
  };
  const std::vector<Case> cases = {
      {"", {}},
      {"hello hello", {hello_, space_hello}},
      {"hell", {hell}},
      {"hel l", {he, 'l', ' ', 'l'}},
      {"ll\u00e9", {ll, e_acute}},
      {"\u20ac", {0xe2, 0x82, 0xac}},
      {std::string("\0\n", 2), {0, '\n'}},
      {"hello<|endoftext|>hello", {hello_, end_of_text, hello_}},
      {"<|endoftext|><|endoftext|>", {end_of_text, end_of_text}},
      {"<|endoftext", {'<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't'}},
      {"hello <|endoftext|> hello", {hello_, ' ', end_of_text, space_hello}},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(tokenizer.encode(one.text), one.tokens) << one.text;
    EXPECT_EQ(tokenizer.decode(one.tokens), one.text);
  }
  EXPECT_EQ(tokenizer.vocabulary(), 263);
}

TEST_F(TokenizerFiles, every_token_is_its_bytes) {
  const Tokenizer tokenizer = this->tokenizer(io::small_tokenizer(hello));
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer.decode(Tokens{byte}), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(tokenizer.decode(Tokens{space_hello}), " hello");
}

TEST_F(TokenizerFiles, a_prefix_space_is_put_before_each_text_that_has_none) {
  nlohmann::json root = io::small_tokenizer(hello);
  root["pre_tokenizer"]["add_prefix_space"] = true;
  const Tokenizer tokenizer = this->tokenizer(root);
  EXPECT_EQ(tokenizer.encode("hello<|endoftext|>hello"),
            (Tokens{space_hello, end_of_text, space_hello}));
  EXPECT_EQ(tokenizer.encode(" hello"), Tokens{space_hello});
}

TEST_F(TokenizerFiles, of_added_tokens_at_one_place_the_longest_is_found) {
  nlohmann::json root = io::small_tokenizer(hello);
  root["added_tokens"] = {{{"id", 262}, {"content", "<|endoftext|>"}},
                          {{"id", 263}, {"content", "<|end"}},
                          {{"id", 264}, {"content", "of"}, {"normalized", true}},
                          {{"id", 265}, {"content", "\u4f60 x"}}};
  const Tokenizer tokenizer = this->tokenizer(root);
  EXPECT_EQ(tokenizer.encode("<|endoftext|><|endof\u4f60 x"), (Tokens{262, 263, 264, 265}));
  EXPECT_EQ(tokenizer.decode(Tokens{265}), "\u4f60 x");
  EXPECT_EQ(tokenizer.vocabulary(), 266);
}

TEST_F(TokenizerFiles, the_older_pair_gives_the_same_tokens) {
  write("vocab.json", io::small_vocabulary(hello).dump());
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : hello) {
    merges += left + " " + right + "\n";
  }
  write("merges.txt", merges);
  const Tokenizer pair = read_tokenizer(folder_.path());
  const Tokenizer whole = this->tokenizer(io::small_tokenizer(hello));
  const std::string text = "hello he<|endoftext|> h\u00e9llo";
  EXPECT_EQ(pair.encode(text), whole.encode(text));
  EXPECT_EQ(pair.vocabulary(), whole.vocabulary());
}

TEST_F(TokenizerFiles, the_checksum_tells_what_makes_other_tokens) {
  nlohmann::json root = io::small_tokenizer(hello);
  const std::uint64_t sum = tokenizer(root).checksum();
  write("tokenizer.json", root.dump(4));
  EXPECT_EQ(read_tokenizer(folder_.path()).checksum(), sum) << "spaces between are nothing";
  std::vector<nlohmann::json> others(5, root);
  std::swap(others[0]["model"]["merges"][0], others[0]["model"]["merges"][1]);
  others[1]["model"]["merges"].erase(5);
  others[2]["pre_tokenizer"]["add_prefix_space"] = true;
  others[3]["added_tokens"][0]["normalized"] = true;
  std::swap(others[4]["model"]["vocab"]["a"], others[4]["model"]["vocab"]["b"]);
  for (const nlohmann::json& other : others) {
    EXPECT_NE(tokenizer(other).checksum(), sum) << other;
  }
}

TEST_F(TokenizerFiles, what_cannot_be_is_refused) {
  const Tokenizer tokenizer = this->tokenizer(io::small_tokenizer(hello));
  EXPECT_EQ(message_of([&] { tokenizer.decode(Tokens{263}); }),
            "there is no token 263; there are 0 to 262");
  EXPECT_EQ(message_of([&] { tokenizer.decode(Tokens{-1}); }),
            "there is no token -1; there are 0 to 262");
  EXPECT_EQ(message_of([&] { tokenizer.encode("hello \xff"); }),
            "the text is no UTF-8 at byte 6; convert it, as by iconv -t UTF-8");
}

TEST_F(TokenizerFiles, files_that_are_missing_are_named) {
  const auto said = [&](const std::string& path) -> std::string {
    try {
      read_tokenizer(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string folder = folder_.path();
  EXPECT_EQ(said(folder), folder + " holds neither tokenizer.json nor vocab.json with merges.txt");
  EXPECT_NE(said(folder + "/nowhere.json").find("nowhere.json"), std::string::npos);
  write("vocab.json", "{}");
  EXPECT_NE(said(folder).find("merges.txt"), std::string::npos);
}

}  // namespace
}  // namespace sprat::tokenizer_test
