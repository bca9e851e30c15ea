// Where a text that is read in pieces may be cut without changing its tokens.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/model.hpp"

namespace sprat::io {

/// Any thread may use it, several at once.
class TextCuts {
 public:
  explicit TextCuts(const TokenizerModel& model);

  /// The last place of `text`, which may go on, such that what is before it and what is behind have
  /// the tokens of the whole. Looks at those from `from` on; 0 if there is none among them.
  std::size_t last(std::string_view text, std::size_t from = 0) const;
  /// Places that were none may be some once so many bytes more are known.
  std::size_t doubt() const { return longest_; }

 private:
  bool may_cut(std::string_view text, std::size_t at) const;

  std::vector<std::string> spaced_;  // added tokens with a space inside
  std::size_t longest_ = 0;          // of these
  bool prefix_space_;
};

}  // namespace sprat::io
