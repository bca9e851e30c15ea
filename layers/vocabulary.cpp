#include "layers/vocabulary.hpp"

#include "comm/base/check.hpp"

namespace sprat::layers {

TokenRange held_tokens(int vocabulary, const std::optional<TokenRange>& part) {
  const TokenRange held = part.value_or(TokenRange{.first = 0, .count = vocabulary});
  require(held.first >= 0 && held.count >= 0 && held.count <= vocabulary - held.first, "the ",
          held.count, " tokens from ", held.first, " on are no part of a vocabulary of ",
          vocabulary, "; give each rank a part of it");
  return held;
}

void check_tokens(const char* what, int vocabulary, std::span<const std::int32_t> tokens) {
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    require(tokens[row] >= 0 && tokens[row] < vocabulary, what, " ", tokens[row], " of row ", row,
            " is not in the vocabulary, which ends below ", vocabulary,
            "; encode the text with the model's own vocabulary");
  }
}

}  // namespace sprat::layers
