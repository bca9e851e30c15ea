// Drawing tokens from predictions, what of their text may be shown, and counting words.
#include "train/sample.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "train/model/random.hpp"

namespace sprat::train {
namespace {

/// The token at which the cumulative probability passes `point` of [0, 1).
std::int32_t draw(std::span<const float> logits, double temperature, double point) {
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
      return static_cast<std::int32_t>(i);
    }
  }
  return static_cast<std::int32_t>(weights.size() - 1);
}

/// What begins a text: one character, or as much of it as is there.
struct Character {
  std::size_t bytes = 1;
  char32_t code = 0;
  bool whole = false;  ///< Else it is no UTF-8.
};

/// A lead byte says how many bytes follow; what may follow first is narrower where a shorter form
/// exists, a surrogate would come out, or Unicode ends (Unicode 15, table 3-7).
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    return {.bytes = 1, .code = lead, .whole = true};
  }
  if (lead < 0xc2 || lead > 0xf4) {
    return {};
  }
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  Character found{.bytes = 1, .code = lead & (0x7fu >> length), .whole = false};
  for (; found.bytes < std::min(length, text.size()); ++found.bytes) {
    const unsigned next = byte(found.bytes);
    if (next < (found.bytes == 1 ? least : 0x80) || next > (found.bytes == 1 ? most : 0xbf)) {
      return found;
    }
    found.code = (found.code << 6) | (next & 0x3f);
  }
  found.whole = found.bytes == length;
  return found;
}

/// Terminals take both ranges for orders: U+009B alone begins one, as ESC [ does.
bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

bool is_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

char lower(char letter) { return static_cast<char>(letter | 0x20); }

/// Calls each(word, begin, end) for each run of letters.
template <class Each>
void for_each_word(std::string_view text, const Each& each) {
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && is_letter(text[i])) {
      word.push_back(lower(text[i]));
    } else if (!word.empty()) {
      each(word, i - word.size(), i);
      word.clear();
    }
  }
}

}  // namespace

std::vector<std::int32_t> write_sample(GptStages& gpt, const SampleOptions& options) {
  const RandomStream random(options.seed, "sample");
  const auto context = static_cast<std::size_t>(options.context);
  std::vector<std::int32_t> text(options.prompt.begin(), options.prompt.end());
  for (int i = 0; i < options.tokens; ++i) {
    const auto recent = std::span(text).last(std::min(text.size(), context));
    const auto logits = gpt.predict(std::vector<std::int32_t>(recent.begin(), recent.end()));
    text.push_back(draw(logits.first(static_cast<std::size_t>(options.vocabulary)),
                        options.temperature, random.uniform(static_cast<std::uint64_t>(i))));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(options.prompt.size()), text.end()};
}

int tokens_of_bytes(double bytes_per_token, int bytes) {
  return std::max(1, static_cast<int>(std::lround(bytes / std::max(bytes_per_token, 1.0))));
}

std::string printable(std::string_view text) {
  constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD
  std::string shown;
  while (!text.empty()) {
    const Character next = first_character(text);
    const bool is_layout = next.code == '\n' || next.code == '\t';
    const bool shows = next.whole && (is_layout || !is_control(next.code));
    shown += shows ? text.substr(0, next.bytes) : replacement;
    text.remove_prefix(next.bytes);
  }
  return shown;
}

/// A piece may end inside of a word, which goes on in the next.
Vocabulary words_of(const TokenizedText& text, std::size_t tokens) {
  Vocabulary vocabulary;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) {
      vocabulary.insert(std::exchange(word, {}));
    }
  };
  text.for_each_piece(0, tokens, [&](std::string_view piece) {
    for (const char letter : piece) {
      if (is_letter(letter)) {
        word.push_back(lower(letter));
      } else {
        end_word();
      }
    }
  });
  end_word();
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
