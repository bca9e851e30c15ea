// Text that the model writes, and how much of it is words that it has read.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/tokenized_text.hpp"
#include "train/model/gpt_stages.hpp"

namespace sprat::train {

struct SampleOptions {
  std::span<const std::int32_t> prompt;  ///< At least one token.
  int tokens = 0;                        ///< To write after it.
  int vocabulary = 256;  ///< Tokens that may be written; a model may have room for more.
  double temperature = 0.7;
  std::uint64_t seed = 0;
  int context = 0;  ///< Tokens that a prediction looks back on, at most the model's.
};
/// The tokens that follow the prompt, by a rank that has the whole model. A pure function of its
/// parameters and the options.
std::vector<std::int32_t> write_sample(GptStages& gpt, const SampleOptions& options);
/// How many tokens make so many bytes, if each is of `bytes_per_token`; one at least.
int tokens_of_bytes(double bytes_per_token, int bytes);

/// `text` as a terminal may have it: UTF-8, lines and tabs stay, and U+FFFD stands for each other
/// control character and for each piece of what is no UTF-8, as Unicode advises.
std::string printable(std::string_view text);

/// Words are runs of ASCII letters, in lower case.
using Vocabulary = std::set<std::string, std::less<>>;
/// Those of the first so many tokens.
Vocabulary words_of(const TokenizedText& text, std::size_t tokens);

struct WordShare {
  int known = 0, words = 0;
  double share() const { return words > 0 ? static_cast<double>(known) / words : 0; }
};
/// How many of the words of `sample` are in `vocabulary`; not counting a first and a last one that
/// the sample's ends may have cut.
WordShare known_words(std::string_view sample, const Vocabulary& vocabulary);

}  // namespace sprat::train
