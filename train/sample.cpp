// Drawing bytes from predictions, and counting words.
#include "train/sample.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "train/model/random.hpp"

namespace sprat::train {
namespace {

/// The byte at which the cumulative probability passes `point` of [0, 1).
std::uint8_t draw(std::span<const float> logits, double temperature, double point) {
  const double highest = double{*std::max_element(logits.begin(), logits.end())};
  std::vector<double> weights(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((double{logits[i]} - highest) / temperature);
    total += weights[i];
  }
  double passed = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    passed += weights[i];
    if (passed > point * total) {
      return static_cast<std::uint8_t>(i);
    }
  }
  return static_cast<std::uint8_t>(weights.size() - 1);
}

bool is_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

/// Calls each(word, begin, end) for each run of letters.
template <class Each>
void for_each_word(std::string_view text, const Each& each) {
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && is_letter(text[i])) {
      word.push_back(static_cast<char>(text[i] | 0x20));
    } else if (!word.empty()) {
      each(word, i - word.size(), i);
      word.clear();
    }
  }
}

}  // namespace

std::string write_sample(GptStages& gpt, const SampleOptions& options) {
  const RandomStream random(options.seed, "sample");
  const auto context = static_cast<std::size_t>(options.context);
  std::vector<std::uint8_t> text(options.prompt.begin(), options.prompt.end());
  for (int i = 0; i < options.bytes; ++i) {
    const auto recent = std::span(text).last(std::min(text.size(), context));
    const auto logits = gpt.predict(std::vector<std::int32_t>(recent.begin(), recent.end()));
    text.push_back(
        draw(logits, options.temperature, random.uniform(static_cast<std::uint64_t>(i))));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(options.prompt.size()), text.end()};
}

Vocabulary words_of(std::span<const std::uint8_t> text) {
  Vocabulary vocabulary;
  for_each_word(
      std::string(text.begin(), text.end()),
      [&](const std::string& word, std::size_t, std::size_t) { vocabulary.insert(word); });
  return vocabulary;
}

WordShare known_words(std::string_view sample, const Vocabulary& vocabulary) {
  WordShare share;
  for_each_word(sample, [&](const std::string& word, std::size_t begin, std::size_t end) {
    if (begin > 0 && end < sample.size()) {
      ++share.words;
      share.known += vocabulary.contains(word);
    }
  });
  return share;
}

}  // namespace sprat::train
