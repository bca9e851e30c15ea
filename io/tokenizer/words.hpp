// Text cut into words as GPT-2 cuts it; merges stay inside one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace sprat::io {

/// GPT-2's regular expression. Any thread may use it, several at once. What is a letter or a digit
/// is as the PCRE2 that is installed knows it (Unicode 14 for 10.42).
class WordCutter {
 public:
  WordCutter();
  ~WordCutter();
  WordCutter(WordCutter&&) noexcept;

  /// Throws Error{invalid_argument} naming the first byte that is no UTF-8, counted from `before`.
  void check(std::string_view text, std::uint64_t before = 0) const;
  /// Visits the words of a checked text, which follow each other without a gap.
  void for_each_word(std::string_view text,
                     const std::function<void(std::string_view)>& visit) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace sprat::io
