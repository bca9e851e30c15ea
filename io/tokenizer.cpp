// The public tokenizer: added tokens are found first, the rest is cut into words and merged.
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "io/checked_file.hpp"
#include "io/tokenizer/cuts.hpp"
#include "io/tokenizer/merges.hpp"
#include "io/tokenizer/model.hpp"
#include "io/tokenizer/word_cache.hpp"
#include "io/tokenizer/words.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

constexpr std::uint64_t longest_file = std::uint64_t{256} << 20;

/// Added tokens by their first byte, the longest first.
using ByFirstByte = std::array<std::vector<io::AddedToken>, 256>;

std::size_t first_byte(std::string_view text) { return static_cast<unsigned char>(text[0]); }

ByFirstByte sorted(const std::vector<io::AddedToken>& added, bool normalized) {
  ByFirstByte out;
  for (const io::AddedToken& token : added) {
    if (token.normalized == normalized) {
      out[first_byte(token.content)].push_back(token);
    }
  }
  for (auto& tokens : out) {
    std::ranges::stable_sort(tokens, std::greater(),
                             [](const io::AddedToken& token) { return token.content.size(); });
  }
  return out;
}

/// Visits the text between added tokens, and those: left to right, the longest of those that begin
/// at one place.
void cut_at(const ByFirstByte& added, std::string_view text,
            const std::function<void(std::string_view)>& visit_text,
            const std::function<void(std::int32_t)>& visit_token) {
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const auto& candidates = added[first_byte(text.substr(at))];
    const auto found = std::ranges::find_if(candidates, [&](const io::AddedToken& token) {
      return text.substr(at).starts_with(token.content);
    });
    if (found == candidates.end()) {
      ++at;
      continue;
    }
    if (at > begin) {
      visit_text(text.substr(begin, at - begin));
    }
    visit_token(found->token);
    at += found->content.size();
    begin = at;
  }
  if (begin < text.size()) {
    visit_text(text.substr(begin));
  }
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(io::TokenizerModel from)
      : model(std::move(from)),
        merges(model),
        raw(sorted(model.added, false)),
        normalized(sorted(model.added, true)) {}

  io::TokenizerModel model;
  io::MergeTable merges;
  io::WordCutter words;
  ByFirstByte raw, normalized;

  /// Appends the tokens of a text that is UTF-8.
  void encode(std::string_view text, io::WordCache& known,
              std::vector<std::int32_t>& tokens) const {
    const auto add_token = [&](std::int32_t token) { tokens.push_back(token); };
    cut_at(
        raw, text,
        [&](std::string_view between) {
          cut_at(
              normalized, between,
              [&](std::string_view rest) { encode_words(rest, known, tokens); }, add_token);
        },
        add_token);
  }

 private:
  void encode_words(std::string_view text, io::WordCache& known,
                    std::vector<std::int32_t>& tokens) const {
    const auto add_word = [&](std::string_view word) { known.append(word, tokens); };
    if (model.prefix_space && !text.starts_with(' ')) {
      words.for_each_word(std::string(1, ' ').append(text), add_word);
    } else {
      words.for_each_word(text, add_word);
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  impl_->words.check(text);
  io::WordCache known(impl_->merges);
  std::vector<std::int32_t> tokens;
  impl_->encode(text, known, tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < vocabulary(), "there is no token ", token, "; there are 0 to ",
            vocabulary() - 1);
    text += impl_->model.tokens[static_cast<std::size_t>(token)];
  }
  return text;
}

std::int32_t Tokenizer::vocabulary() const noexcept {
  return static_cast<std::int32_t>(impl_->model.tokens.size());
}

std::uint64_t Tokenizer::checksum() const {
  std::uint64_t sum = fnv1a_begin;
  const auto add_number = [&](std::int64_t number) {
    sum = fnv1a(std::as_bytes(std::span(&number, 1)), sum);
  };
  const auto add_text = [&](std::string_view text) {
    add_number(static_cast<std::int64_t>(text.size()));  // where it ends
    sum = fnv1a(std::as_bytes(std::span(text)), sum);
  };
  std::ranges::for_each(impl_->model.tokens, add_text);
  for (const io::TokenMerge& merge : impl_->model.merges) {
    add_number(merge.left);
    add_number(merge.right);
  }
  for (const io::AddedToken& added : impl_->model.added) {
    add_text(added.content);
    add_number(added.normalized ? 1 : 0);
  }
  add_number(impl_->model.prefix_space ? 1 : 0);
  return sum;
}

struct TokenStream::Impl {
  explicit Impl(const Tokenizer::Impl& with)
      : tokenizer(with), cuts(with.model), known(with.merges) {}

  const Tokenizer::Impl& tokenizer;
  io::TextCuts cuts;
  io::WordCache known;
  std::string held;         // the text's end so far
  std::uint64_t taken = 0;  // bytes of the text before that

  std::vector<std::int32_t> encode_first(std::size_t bytes) {
    const std::string_view text = std::string_view(held).substr(0, bytes);
    tokenizer.words.check(text, taken);
    std::vector<std::int32_t> tokens;
    tokenizer.encode(text, known, tokens);
    held.erase(0, bytes);
    taken += bytes;
    return tokens;
  }
};

TokenStream::TokenStream(const Tokenizer& tokenizer)
    : impl_(std::make_unique<Impl>(*tokenizer.impl_)) {}
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream::~TokenStream() = default;

std::vector<std::int32_t> TokenStream::append(std::string_view piece) {
  // What was looked at before is not looked at again, so that a text without a space is no trap.
  const std::size_t known = impl_->held.size() - std::min(impl_->held.size(), impl_->cuts.doubt());
  impl_->held += piece;
  return impl_->encode_first(impl_->cuts.last(impl_->held, known));
}

std::vector<std::int32_t> TokenStream::finish() { return impl_->encode_first(impl_->held.size()); }

Tokenizer read_tokenizer(const std::string& path) {
  const std::filesystem::path folder(path);
  std::error_code ignored;  // a path that cannot be looked at is named when it is opened
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Tokenizer(std::make_unique<const Tokenizer::Impl>(
        io::parse_tokenizer_json(path, io::read_whole(path, longest_file))));
  }
  if (std::filesystem::exists(folder / "tokenizer.json", ignored)) {
    return read_tokenizer((folder / "tokenizer.json").string());
  }
  need(std::filesystem::exists(folder / "vocab.json", ignored), path,
       " holds neither tokenizer.json nor vocab.json with merges.txt");
  const std::string vocabulary = io::read_whole((folder / "vocab.json").string(), longest_file);
  const std::string merges = io::read_whole((folder / "merges.txt").string(), longest_file);
  return Tokenizer(std::make_unique<const Tokenizer::Impl>(
      io::parse_tokenizer_pair(path, {.vocabulary = vocabulary, .merges = merges})));
}

}  // namespace sprat
