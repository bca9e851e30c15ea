#include "io/tokenizer/words.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

// White space is spelt out: PCRE2's \s has one character more (U+180E) than Unicode's property.
#define SPRAT_SPACE "\\x{9}-\\x{d}\\x{20}\\x{85}\\p{Z}"
constexpr const char* gpt2_words =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?\\p{L}+"
    "| ?\\p{N}+"
    "| ?[^" SPRAT_SPACE
    "\\p{L}\\p{N}]+"
    "|[" SPRAT_SPACE "]+(?![^" SPRAT_SPACE
    "])"
    "|[" SPRAT_SPACE "]+";
#undef SPRAT_SPACE

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

Match new_match() {
  Match match(pcre2_match_data_create(1, nullptr));
  need(match != nullptr, "no memory to cut text into words");
  return match;
}

}  // namespace

struct WordCutter::Impl {
  struct FreeCode {
    void operator()(pcre2_code* compiled) const { pcre2_code_free(compiled); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code;

  Impl() {
    int error = 0;
    std::size_t at = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(gpt2_words), PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_ANCHORED, &error, &at, nullptr));
    need(code != nullptr, "PCRE2 refuses GPT-2's regular expression at ", at, " with error ", error,
         "; it must be built with Unicode");
    // Where machine code cannot be made the expression is interpreted: slower, with equal results.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  }
};

WordCutter::WordCutter() : impl_(std::make_unique<const Impl>()) {}
WordCutter::~WordCutter() = default;
WordCutter::WordCutter(WordCutter&&) noexcept = default;

void WordCutter::check(std::string_view text, std::uint64_t before) const {
  if (text.empty()) {
    return;
  }
  const Match match = new_match();
  const int result =
      pcre2_match(impl_->code.get(), units(text), text.size(), 0, 0, match.get(), nullptr);
  if (result <= PCRE2_ERROR_UTF8_ERR1 && result >= PCRE2_ERROR_UTF8_ERR21) {
    throw Error(ErrorCode::invalid_argument, sprat::text("the text is no UTF-8 at byte ",
                                                         before + pcre2_get_startchar(match.get()),
                                                         "; convert it, as by iconv -t UTF-8"));
  }
}

void WordCutter::for_each_word(std::string_view text,
                               const std::function<void(std::string_view)>& visit) const {
  const Match match = new_match();
  for (std::size_t at = 0; at < text.size();) {
    // Without the check of UTF-8, which would look at all of the rest for each word.
    const int result = pcre2_match(impl_->code.get(), units(text), text.size(), at,
                                   PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    need(result > 0, "PCRE2 fails with error ", result, " at byte ", at, " of a text of ",
         text.size());
    const std::size_t end = pcre2_get_ovector_pointer(match.get())[1];
    visit(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace sprat::io
