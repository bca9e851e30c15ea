// Words, as GPT-2 cuts text.
#include "io/tokenizer/words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/comm/base/refused.hpp"

namespace sprat::io::tokenizer_words_test {
namespace {

using Words = std::vector<std::string>;

Words words_of(const WordCutter& cutter, const std::string& text) {
  Words words;
  cutter.for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(WordCutter, cuts_where_gpt2_cuts) {
  struct Case {
    const char* text;
    Words words;
  };
  const std::vector<Case> cases = {
      {"", {}},
      {"hello world", {"hello", " world"}},
      {"I'm you're it's we'll I've don't I'd",
       {"I", "'m", " you", "'re", " it", "'s", " we", "'ll", " I", "'ve", " don", "'t", " I",
        "'d"}},
      {"IT'S", {"IT", "'", "S"}},
      {"x2y 34", {"x", "2", "y", " 34"}},
      {"a  b", {"a", " ", " b"}},
      {"a   ", {"a", "   "}},
      {"a\n\n b", {"a", "\n\n", " b"}},
      {"a\tb", {"a", "\t", "b"}},
      {" ", {" "}},
      {"!? (x)", {"!?", " (", "x", ")"}},
      {"na\u00efve \u00e9t\u00e9", {"na\u00efve", " \u00e9t\u00e9"}},
      {"\u4f60\u597d\uff0c\u4e16\u754c", {"\u4f60\u597d", "\uff0c", "\u4e16\u754c"}},
      {"\u0663\u00bd\u2167", {"\u0663\u00bd\u2167"}},      // digits, fractions, Roman numerals
      {"e\u0301x", {"e", "\u0301", "x"}},                  // a mark is no letter
      {"a\u00a0b", {"a", "\u00a0", "b"}},                  // white space, but no blank
      {"a\u180eb", {"a", "\u180e", "b"}},                  // was white space before Unicode 6.3
      {"a \u0085\u2003 b", {"a", " \u0085\u2003", " b"}},  //
      {"\U0001f600 \U0001f600", {"\U0001f600", " \U0001f600"}},
  };
  const WordCutter cutter;
  for (const Case& one : cases) {
    cutter.check(one.text);
    EXPECT_EQ(words_of(cutter, one.text), one.words) << one.text;
  }
}

TEST(WordCutter, bytes_of_zero_are_like_others) {
  const WordCutter cutter;
  EXPECT_EQ(words_of(cutter, std::string("a\0\0b", 4)), (Words{"a", std::string("\0\0", 2), "b"}));
}

TEST(WordCutter, a_long_run_of_anything_is_one_word) {
  const WordCutter cutter;
  for (const char c : {'a', '7', ' ', '-'}) {
    const std::string run(1 << 20, c);
    cutter.check(run);
    EXPECT_EQ(words_of(cutter, run), Words{run}) << c;
  }
}

TEST(WordCutter, what_is_no_utf8_is_refused_at_its_first_byte) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"ab\xff", 2},   {"\xc3", 0}, {"a\xc3(", 1}, {"\xed\xa0\x80", 0}, {"ok\xf4\x90\x80\x80", 2},
      {"\xc0\x80", 0},
  };
  const WordCutter cutter;
  for (const auto& [text, at] : cases) {
    EXPECT_EQ(message_of([&, &text = text] { cutter.check(text); }),
              "the text is no UTF-8 at byte " + std::to_string(at) +
                  "; convert it, as by iconv -t UTF-8");
    EXPECT_EQ(message_of([&, &text = text] { cutter.check(text, 1000); }),
              "the text is no UTF-8 at byte " + std::to_string(1000 + at) +
                  "; convert it, as by iconv -t UTF-8");
  }
}

}  // namespace
}  // namespace sprat::io::tokenizer_words_test
