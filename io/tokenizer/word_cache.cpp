#include "io/tokenizer/word_cache.hpp"

namespace sprat::io {
namespace {

// A text's frequent words come early and are short; the bounds keep a text without spaces, or of
// ever new words, from filling the memory.
constexpr std::size_t most_words = 1 << 16, longest_word = 32;

}  // namespace

void WordCache::append(std::string_view word, std::vector<std::int32_t>& tokens) {
  if (const auto found = known_.find(word); found != known_.end()) {
    tokens.insert(tokens.end(), found->second.begin(), found->second.end());
    return;
  }
  const auto before = static_cast<std::ptrdiff_t>(tokens.size());
  merges_.append(word, tokens);
  if (word.size() <= longest_word && known_.size() < most_words) {
    known_.emplace(word, std::vector(tokens.begin() + before, tokens.end()));
  }
}

}  // namespace sprat::io
