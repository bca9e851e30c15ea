// Text that the model writes, and how much of it is words that it has read.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "train/model/gpt_stages.hpp"

namespace sprat::train {

struct SampleOptions {
  std::string_view prompt;  ///< At least one byte.
  int bytes = 0;            ///< To write after it.
  double temperature = 0.7;
  std::uint64_t seed = 0;
  int context = 0;  ///< Bytes that a prediction looks back on, at most the model's.
};
/// What follows the prompt, by a rank that has the whole model. A pure function of its parameters
/// and the options.
std::string write_sample(GptStages& gpt, const SampleOptions& options);

/// Words are runs of ASCII letters, in lower case.
using Vocabulary = std::set<std::string, std::less<>>;
Vocabulary words_of(std::span<const std::uint8_t> text);

struct WordShare {
  int known = 0, words = 0;
  double share() const { return words > 0 ? static_cast<double>(known) / words : 0; }
};
/// How many of the words of `sample` are in `vocabulary`; not counting a first and a last one that
/// the sample's ends may have cut.
WordShare known_words(std::string_view sample, const Vocabulary& vocabulary);

}  // namespace sprat::train
