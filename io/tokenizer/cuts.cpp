// A word of GPT-2's begins where a space follows what is none: a space is only ever the first
// character of a word, or one of white space alone. No expression looks back, and the one that
// looks ahead, behind white space, sees a character that stays with it. So the text may be cut
// there, unless an added token lies across.
#include "io/tokenizer/cuts.hpp"

#include <algorithm>
#include <initializer_list>

namespace sprat::io {
namespace {

/// Of Unicode's block General Punctuation all is taken for white space: a cut too few does no harm.
bool may_end_in_space(std::string_view text) {
  const auto last = static_cast<unsigned char>(text.back());
  if (last < 0x80) {
    return last == ' ' || (last >= '\t' && last <= '\r');
  }
  for (const std::string_view space :
       {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe1\xa0\x8e", "\xe2\x81\x9f", "\xe3\x80\x80"}) {
    if (text.ends_with(space)) {
      return true;
    }
  }
  return text.size() >= 3 && text.substr(text.size() - 3).starts_with("\xe2\x80");
}

/// Whether `token` may lie across a place of `text`, as far as that is known.
bool may_cross(std::string_view token, std::string_view text, std::size_t at) {
  for (std::size_t before = 1; before < std::min(token.size(), at + 1); ++before) {
    const std::string_view found = text.substr(at - before, token.size());
    if (token.starts_with(found)) {
      return true;
    }
  }
  return false;
}

}  // namespace

TextCuts::TextCuts(const TokenizerModel& model) : prefix_space_(model.prefix_space) {
  for (const AddedToken& added : model.added) {
    if (added.content.find_first_of(" \n", 1) != std::string::npos) {
      spaced_.push_back(added.content);
      longest_ = std::max(longest_, added.content.size());
    }
  }
}

bool TextCuts::may_cut(std::string_view text, std::size_t at) const {
  // Where a space is put before each text that has none, only a space begins a text of its own.
  const bool space = text[at] == ' ' || (text[at] == '\n' && !prefix_space_);
  return space && !may_end_in_space(text.substr(0, at)) &&
         std::ranges::none_of(spaced_,
                              [&](const std::string& token) { return may_cross(token, text, at); });
}

std::size_t TextCuts::last(std::string_view text, std::size_t from) const {
  for (std::size_t at = text.size(); at > std::max<std::size_t>(from, 1); --at) {
    if (may_cut(text, at - 1)) {
      return at - 1;
    }
  }
  return 0;
}

}  // namespace sprat::io
