// Files of tokenizers, and texts: files are refused with an Error or make tokens that spell the
// text they are given; words follow each other without a gap.
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/merges.hpp"
#include "io/tokenizer/model.hpp"
#include "io/tokenizer/words.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

void cut_words(std::string_view text) {
  static const io::WordCutter cutter;
  cutter.check(text);
  std::string again;
  cutter.for_each_word(text, [&](std::string_view word) {
    expect(!word.empty(), "a word has a byte");
    again += word;
  });
  expect(again == text, "words make the text");
}

void merge(const io::TokenizerModel& model, std::string_view text) {
  std::vector<std::int32_t> tokens;
  io::MergeTable(model).append(text, tokens);
  std::string again;
  for (const std::int32_t token : tokens) {
    again += model.tokens.at(static_cast<std::size_t>(token));
  }
  expect(again == text, "tokens spell the text");
}

/// 256 bytes with these merges beside them.
void read_merges(std::string_view merges) {
  std::string vocabulary = "{";
  for (int byte = 0; byte < 256; ++byte) {
    std::string character = io::byte_character(static_cast<std::byte>(byte));
    if (character == "\"" || character == "\\") {
      character = "\\" + character;
    }
    vocabulary += "\"" + character + "\":" + std::to_string(byte) + ",";
  }
  vocabulary += R"("ab":256,"abc":257,"bc":258,"cc":259})";
  const io::TokenizerModel model =
      io::parse_tokenizer_pair("folder", {.vocabulary = vocabulary, .merges = merges});
  merge(model, merges);
  merge(model, "abcabccccaabbcc");
}

}  // namespace

/// The first byte says what the rest is.
bool run_tokenizer(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    switch (std::to_integer<char>(input[0])) {
      case 'j':
        merge(io::parse_tokenizer_json("file", text), text);
        return true;
      case 'm':
        read_merges(text);
        return true;
      case 'w':
        cut_words(text);
        return true;
      default:
        return false;
    }
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
