// What a run learns from, as tokens: bytes, or those of a byte-pair tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sprat/io.hpp"
#include "train/data/token_codec.hpp"

namespace sprat::train {

/// Tokens of a text, in as few bytes each as their vocabulary takes.
class TokenizedText {
 public:
  /// Called as a text is read, with what there is of it.
  using Tell = std::function<void(const TokenizedText&)>;

  /// Each byte is a token.
  explicit TokenizedText(std::vector<std::uint8_t> bytes);
  /// Of files, which are read and encoded piece by piece: the text is never held whole. Throws
  /// Error{unavailable} for a file that cannot be read, Error{invalid_argument} where the text is
  /// no UTF-8.
  TokenizedText(Tokenizer tokenizer, const std::vector<std::string>& files, const Tell& tell = {});

  std::size_t size() const { return size_; }            ///< Tokens.
  std::uint64_t text_bytes() const { return bytes_; }   ///< Of the text itself.
  std::uint64_t checksum() const { return checksum_; }  ///< Of the text: FNV-1a of 64 bits.
  std::size_t held_bytes() const;                       ///< What the tokens take.
  const TokenCodec& codec() const { return codec_; }

  /// Appends `count` tokens from `begin` on.
  void copy(std::size_t begin, std::size_t count, std::vector<std::int32_t>& to) const;
  /// The text of the tokens in [begin, end), in pieces that may be cut inside of a character.
  void for_each_piece(std::size_t begin, std::size_t end,
                      const std::function<void(std::string_view)>& visit) const;

 private:
  // A deque never moves what it has, so that a long text is not held twice while it grows.
  using Bytes = std::vector<std::uint8_t>;
  using Narrow = std::deque<std::uint16_t>;
  using Wide = std::deque<std::int32_t>;

  void append(std::span<const std::int32_t> tokens);

  TokenCodec codec_;
  std::variant<Bytes, Narrow, Wide> tokens_;
  std::size_t size_ = 0;
  std::uint64_t bytes_ = 0, checksum_;
};

}  // namespace sprat::train
