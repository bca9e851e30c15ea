// What an option that counts something takes.
#pragma once

#include <string>

namespace sprat::cli {

/// Whole numbers of `least` or more, as an int holds them: for CLI::Option::check().
class WholeNumber {
 public:
  explicit WholeNumber(int least) : least_(least) {}
  /// Why `text` is none; empty if it is one.
  std::string operator()(const std::string& text) const;

 private:
  int least_;
};

}  // namespace sprat::cli
