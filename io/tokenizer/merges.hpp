// The merges of a byte-pair tokenizer, applied to one word.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/model.hpp"

namespace sprat::io {

/// Any thread may use it, several at once.
class MergeTable {
 public:
  explicit MergeTable(const TokenizerModel& model);

  /// Appends the tokens of a word: its bytes, of whose neighbours the pair of the earliest merge,
  /// the left-most of equals, becomes one until there is none.
  /// Cost: O(n log n) for a word of n bytes, so that a text without a space is no trap.
  void append(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  struct Found {
    std::uint32_t rank = 0;
    std::int32_t merged = 0;
  };
  const Found* find(std::int32_t left, std::int32_t right) const;

  std::vector<std::int32_t> byte_tokens_;
  std::unordered_map<std::uint64_t, Found> merges_;
};

}  // namespace sprat::io
