// Tokens, and which of them a rank has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sprat/layers.hpp"

namespace sprat::layers {

/// What a layer has of a vocabulary: the part, or all of it. Throws Error{invalid_argument} if the
/// part is none of that vocabulary.
TokenRange held_tokens(int vocabulary, const std::optional<TokenRange>& part);

/// Throws Error{invalid_argument} naming the first of `tokens`, and its row, that is not in the
/// vocabulary; `what` they are: "token", "target".
void check_tokens(const char* what, int vocabulary, std::span<const std::int32_t> tokens);

constexpr bool contains(const TokenRange& range, std::int32_t token) {
  return token >= range.first && token - range.first < range.count;
}

}  // namespace sprat::layers
