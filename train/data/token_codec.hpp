// Tokens as text and back: bytes, or those of a byte-pair tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/io.hpp"

namespace sprat::train {

class TokenCodec final {
 public:
  TokenCodec() = default;  ///< Each byte is a token.
  explicit TokenCodec(Tokenizer tokenizer);

  bool is_bytes() const { return !tokenizer_; }
  int vocabulary() const;  ///< Tokens that there may be.
  /// "bytes", or what tells this tokenizer from others.
  const std::string& description() const { return description_; }
  /// Null for bytes.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  std::optional<Tokenizer> tokenizer_;
  std::string description_ = "bytes";
};

}  // namespace sprat::train
