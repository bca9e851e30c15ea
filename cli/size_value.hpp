// Sizes on the command line: 64M, and nothing that only looks like one.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace sprat::cli {

/// As CLI::AsSizeValue, for CLI::Option::transform(), but that one takes "-1" and numbers beyond 64
/// bits for the largest there is, and those with zeros in front for octal ones.
class SizeValue : public CLI::AsSizeValue {
 public:
  /// `thousands`: k is 1,000, and Ki 1,024; else both are 1,024.
  explicit SizeValue(bool thousands) : CLI::AsSizeValue(thousands) {
    func_ = [read = std::move(func_)](std::string& text) {
      std::uint64_t number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      const bool padded = text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
      return error != std::errc{} || padded
                 ? fmt::format("\"{}\" is no size, such as 512, 64K or 2G", text)
                 : read(text);
    };
  }
};

}  // namespace sprat::cli
