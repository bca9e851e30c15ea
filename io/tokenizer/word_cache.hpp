// The tokens of words that were met before: most words of a text are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/merges.hpp"

namespace sprat::io {

/// One thread at a time.
class WordCache {
 public:
  /// `merges` outlives it.
  explicit WordCache(const MergeTable& merges) : merges_(merges) {}

  /// Appends the tokens of a word, as MergeTable does.
  void append(std::string_view word, std::vector<std::int32_t>& tokens);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>()(word);
    }
  };
  using Known = std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>>;

  const MergeTable& merges_;
  Known known_;
};

}  // namespace sprat::io
