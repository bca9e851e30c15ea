#include "train/data/token_codec.hpp"

#include <fmt/core.h>

#include <utility>

#include "train/config/config.hpp"

namespace sprat::train {

TokenCodec::TokenCodec(Tokenizer tokenizer)
    : tokenizer_(std::move(tokenizer)),
      description_(
          fmt::format("{} tokens with checksum {:016x}", vocabulary(), tokenizer_->checksum())) {}

int TokenCodec::vocabulary() const { return tokenizer_ ? tokenizer_->vocabulary() : byte_values; }

std::vector<std::int32_t> TokenCodec::encode(std::string_view text) const {
  if (tokenizer_) {
    return tokenizer_->encode(text);
  }
  std::vector<std::int32_t> tokens;
  for (const char byte : text) {
    tokens.push_back(static_cast<std::uint8_t>(byte));
  }
  return tokens;
}

std::string TokenCodec::decode(std::span<const std::int32_t> tokens) const {
  if (tokenizer_) {
    return tokenizer_->decode(tokens);
  }
  std::string text;
  for (const std::int32_t token : tokens) {
    text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace sprat::train
