#include "cli/whole_number.hpp"

#include <fmt/core.h>

#include <charconv>
#include <limits>

namespace sprat::cli {

std::string WholeNumber::operator()(const std::string& text) const {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // What reads it behind this check would take zeros in front for those of octal numbers.
  const bool padded = text.starts_with("0") && text != "0";
  if (error == std::errc{} && stop == end && value >= least_ && !padded) {
    return "";
  }
  return fmt::format("\"{}\" is not a whole number from {} to {}", text, least_,
                     std::numeric_limits<int>::max());
}

std::string RealNumber::operator()(const std::string& text) const {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && stop == end && value >= least_ && value <= most_) {
    return "";
  }
  return fmt::format("\"{}\" is not a number from {} to {}", text, least_, most_);
}

}  // namespace sprat::cli
