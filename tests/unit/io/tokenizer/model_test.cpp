// What a tokenizer's files may say.
#include "io/tokenizer/model.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/io/tokenizer/small_tokenizer.hpp"

namespace sprat::io::tokenizer_model_test {
namespace {

using Json = nlohmann::json;

std::string refusal_of_files(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(TokenizerModel, bytes_are_written_in_the_alphabet_of_gpt2) {
  const std::vector<std::pair<int, const char*>> rows = {
      {0, "\u0100"},   {9, "\u0109"},   {10, "\u010a"},  {32, "\u0120"},  {33, "!"},
      {65, "A"},       {126, "~"},      {127, "\u0121"}, {128, "\u0122"}, {160, "\u0142"},
      {161, "\u00a1"}, {172, "\u00ac"}, {173, "\u0143"}, {174, "\u00ae"}, {255, "\u00ff"},
  };
  for (const auto& [byte, character] : rows) {
    EXPECT_EQ(byte_character(static_cast<std::byte>(byte)), character) << byte;
  }
  std::set<std::string> characters;
  for (int byte = 0; byte < 256; ++byte) {
    characters.insert(byte_character(static_cast<std::byte>(byte)));
  }
  EXPECT_EQ(characters.size(), 256u);
}

TEST(TokenizerModel, both_forms_of_files_say_the_same) {
  const SpeltMerges merges = {{"a", "b"}, {"\u0120", "ab"}, {"#", "#"}};
  const Json root = small_tokenizer(merges);
  const TokenizerModel model = parse_tokenizer_json("t.json", root.dump());
  EXPECT_EQ(model.tokens.size(), 260u);
  EXPECT_EQ(model.tokens[257], " ab");
  EXPECT_EQ(model.tokens[259], "<|endoftext|>");
  EXPECT_EQ(model.byte_tokens[255], 255);
  EXPECT_EQ(model.merges,
            (std::vector<TokenMerge>{{'a', 'b', 256}, {' ', 256, 257}, {'#', '#', 258}}));
  Json lines = root;
  lines["model"]["merges"] = {"a b", "\u0120 ab", "# #"};
  EXPECT_EQ(parse_tokenizer_json("t.json", lines.dump()), model);
  for (const char* end : {"\n", "\r\n"}) {
    const std::string text =
        std::string("#version: 0.2") + end + "a b" + end + "\u0120 ab" + end + "# #" + end;
    EXPECT_EQ(parse_tokenizer_pair("f", {root["model"]["vocab"].dump(), text}), model);
  }
}

struct Refusal {
  const char* pointer;  ///< Where the file is changed.
  Json value;
  const char* message;  ///< In the refusal.
};

TEST(TokenizerModel, files_of_another_kind_are_refused_with_what_is_not_built) {
  const std::vector<Refusal> cases = {
      {"/normalizer", Json{{"type", "NFC"}}, "t.json has a normalizer, which is not built"},
      {"/truncation", Json{{"max_length", 8}}, "has a truncation"},
      {"/padding", Json::object(), "has a padding"},
      {"/pre_tokenizer/type", "Metaspace", "the pre_tokenizer is \"\\\"Metaspace\\\"\""},
      {"/pre_tokenizer/use_regex", false, "only ByteLevel with its own regular expression"},
      {"/pre_tokenizer", nullptr, "only ByteLevel with its own regular expression"},
      {"/decoder/type", "WordPiece", "the decoder is"},
      {"/model/type", "Unigram", "only BPE is"},
      {"/model/dropout", 0.1, "model.dropout is \"0.1\""},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/ignore_merges", true, "model.ignore_merges"},
      {"/added_tokens/0/lstrip", true, "has lstrip, which is not built"},
      {"/added_tokens/0/single_word", true, "has single_word"},
  };
  for (const Refusal& one : cases) {
    Json root = small_tokenizer({{"a", "b"}});
    root[Json::json_pointer(one.pointer)] = one.value;
    const std::string said = refusal_of_files([&] { parse_tokenizer_json("t.json", root.dump()); });
    EXPECT_NE(said.find(one.message), std::string::npos) << one.pointer << ": " << said;
  }
}

TEST(TokenizerModel, damaged_files_are_refused_with_what_is_wrong) {
  const std::vector<Refusal> cases = {
      {"/model", 3, "has no object \"model\""},
      {"/model/vocab", 3, "the vocabulary is no object"},
      {"/model/vocab/a", -1, "the number of token \"a\" is \"-1\"; it is a whole number"},
      {"/model/vocab/a", 1.5, "the number of token \"a\""},
      {"/model/vocab/a", 98, "two tokens have the number 98"},
      {"/model/vocab/a", 9000, "a token has the number 9000, but there are 258 tokens"},
      {"/model/merges", 3, "model.merges is no array"},
      {"/model/merges/0", "a  b", "merge 0 is \"a  b\"; it is two tokens with a space between"},
      {"/model/merges/0", "ab", "merge 0 is \"ab\""},
      {"/model/merges/0", Json{"a"}, "merge 0 is neither a text nor two of them"},
      {"/model/merges/0", "a c", "merge 0 needs the token \"ac\", which the vocabulary lacks"},
      {"/added_tokens", 3, "added_tokens is no array"},
      {"/added_tokens/0", 3, "an added token has no content"},
      {"/added_tokens/0/content", "", "an added token has no content"},
      {"/added_tokens/0/id", 5, "has the number 5, and another in the vocabulary"},
      {"/added_tokens/0/content", "x y", "two tokens have the number 257"},
      {"/added_tokens/0/lstrip", 3, "lstrip is neither true nor false"},
  };
  for (const Refusal& one : cases) {
    Json root = small_tokenizer({{"a", "b"}});
    root[Json::json_pointer(one.pointer)] = one.value;
    const std::string said = refusal_of_files([&] { parse_tokenizer_json("t.json", root.dump()); });
    EXPECT_NE(said.find(one.message), std::string::npos) << one.pointer << ": " << said;
  }
  Json root = small_tokenizer({});
  root["model"]["vocab"].erase("\u0120");
  root["model"]["vocab"]["ab"] = 32;
  EXPECT_EQ(refusal_of_files([&] { parse_tokenizer_json("t.json", root.dump()); }),
            "t.json: the vocabulary lacks the byte 32, written \"\\u0120\"; train it with the "
            "initial alphabet ByteLevel.alphabet()");
}

TEST(TokenizerModel, what_is_no_json_is_refused_by_the_name_of_its_file) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "t.json is no JSON"},
      {"[]", "t.json is JSON, but no object"},
      {"{\"a\": 1, \"a\": 2}", "t.json gives the key \"a\" twice"},
      {std::string(100000, '['), "t.json is nested too deeply"},
      {"\xff", "t.json is no JSON"},
  };
  for (const auto& [text, message] : cases) {
    const std::string said = refusal_of_files([&] { parse_tokenizer_json("t.json", text); });
    EXPECT_TRUE(said.starts_with(message)) << said;
  }
  const std::string vocabulary = small_vocabulary({}).dump();
  EXPECT_EQ(refusal_of_files([&] {
              parse_tokenizer_pair("f", {vocabulary, "#version\na"});
            }),
            "f/merges.txt: merge 0 is \"a\"; it is two tokens with a space between");
  EXPECT_TRUE(refusal_of_files([&] {
                parse_tokenizer_pair("f", {"{", ""});
              }).starts_with("f/vocab.json is no JSON"));
}

}  // namespace
}  // namespace sprat::io::tokenizer_model_test
