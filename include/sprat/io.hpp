// Text as tokens, and the order in which samples of it are visited.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/export.hpp"

namespace sprat {

/// The bytes of text files, one after another. A file may be compressed by gzip.
/// Throws Error{unavailable} naming the file that cannot be read.
SPRAT_API std::vector<std::uint8_t> read_text(const std::vector<std::string>& paths);
using TakeText = std::function<void(std::span<const std::uint8_t>)>;
/// The same in pieces, cut anywhere, for texts that are not to be held whole.
SPRAT_API void read_text(const std::vector<std::string>& paths, const TakeText& take);

/// Text as numbers and back: byte-pair encoding of bytes, as GPT-2 does it. Gives the numbers that
/// Hugging Face's `tokenizers` gives without adding special tokens. Any thread may use it, several
/// at once.
class SPRAT_API Tokenizer {
 public:
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// `text` is UTF-8; throws Error{invalid_argument} naming the first byte that is not. The words
  /// of special tokens, such as <|endoftext|>, become those.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The bytes of the tokens, one after another. Of a text's first tokens alone they may end inside
  /// a character. Throws Error{invalid_argument} if there is no such token.
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// How many tokens there are: their numbers are below.
  std::int32_t vocabulary() const noexcept;
  /// Of all that decides on tokens: files that say the same have the same, however they are
  /// written.
  std::uint64_t checksum() const;

 private:
  friend SPRAT_API Tokenizer read_tokenizer(const std::string& path);
  friend class TokenStream;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Encodes a text that comes in pieces, cut anywhere, into the tokens of the whole. Holds what it
/// cannot tell the tokens of yet: some words, or all of a text without a space. One thread at a
/// time.
class SPRAT_API TokenStream {
 public:
  /// `tokenizer` outlives this; it may be moved.
  explicit TokenStream(const Tokenizer& tokenizer);
  TokenStream(TokenStream&&) noexcept;
  ~TokenStream();

  /// The next tokens, as far as this piece makes them certain. Throws as Tokenizer::encode().
  std::vector<std::int32_t> append(std::string_view piece);
  /// The last tokens of the text.
  std::vector<std::int32_t> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// From Hugging Face's tokenizer.json, or from a folder with that file or with the older pair
/// vocab.json and merges.txt. Throws Error{unavailable} naming the file: it cannot be read, is
/// damaged, or is of a kind that is not GPT-2's.
SPRAT_API Tokenizer read_tokenizer(const std::string& path);

/// A keyed permutation of [0, size): every index once an epoch, in an order that depends on seed
/// and epoch alone. Pure and O(1) an index, so a cursor is just a counter and any rank can ask for
/// any.
class SPRAT_API Permutation {
 public:
  /// size > 0.
  Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size);
  /// The element at `index` < size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t block) const;
  std::uint64_t key_, size_;
  int half_bits_ = 1;
};

/// Windows of `length` consecutive tokens, without overlap, that together cover a text; where the
/// first begins differs by epoch. Sample i of the whole training run belongs to epoch
/// i / per_epoch(), whatever the number of ranks.
class SPRAT_API SampleOrder {
 public:
  /// Throws Error{invalid_argument} if the text has fewer than 2 * length tokens.
  SampleOrder(std::uint64_t seed, std::uint64_t tokens, std::uint64_t length);
  std::uint64_t per_epoch() const noexcept { return per_epoch_; }
  /// Where the first window of an epoch begins: less than length.
  std::uint64_t shift(std::uint64_t epoch) const;
  /// Where the window of a global sample begins; at most tokens - length.
  std::uint64_t begin(std::uint64_t sample) const;

 private:
  std::uint64_t seed_, length_, per_epoch_;
};

}  // namespace sprat
