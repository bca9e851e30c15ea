// What an option that counts or measures something takes.
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

/// Numbers from `least` to `most`; CLI::Range takes what is none, too: "nan" is below nothing.
class RealNumber {
 public:
  RealNumber(double least, double most) : least_(least), most_(most) {}
  /// Why `text` is none; empty if it is one.
  std::string operator()(const std::string& text) const;

 private:
  double least_, most_;
};

}  // namespace sprat::cli
