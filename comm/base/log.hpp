// Logging with one prefix, `[sprat 3/8 host7]`. Nothing is logged per message.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace spdlog {
class logger;
}

namespace sprat {

enum class LogLevel { debug, info, warn, error };

/// What the library says, to standard error. Any thread. Keeps spdlog's headers, which take seconds
/// to compile, out of those who speak.
class Log {
 public:
  template <class... Args>
  void debug(fmt::format_string<const Args&...> format, const Args&... args) const {
    write(LogLevel::debug, format, fmt::make_format_args(args...));
  }
  template <class... Args>
  void info(fmt::format_string<const Args&...> format, const Args&... args) const {
    write(LogLevel::info, format, fmt::make_format_args(args...));
  }
  template <class... Args>
  void warn(fmt::format_string<const Args&...> format, const Args&... args) const {
    write(LogLevel::warn, format, fmt::make_format_args(args...));
  }
  template <class... Args>
  void error(fmt::format_string<const Args&...> format, const Args&... args) const {
    write(LogLevel::error, format, fmt::make_format_args(args...));
  }
  /// Says, as an error, that `cause` ended the job, the moment it is known, and `more` about it.
  void failure(std::string_view cause, std::string_view more) const;
  /// Whether failure() has said the cause that `complaint` is about.
  bool has_said(std::string_view complaint) const;
  bool says(LogLevel level) const;
  /// Where it goes: tests listen there.
  static spdlog::logger& logger();

 private:
  void write(LogLevel level, fmt::string_view format, fmt::format_args args) const;
};
constexpr Log log() { return {}; }

/// Sets the level ("trace" … "off") and, once joined, who speaks.
void configure_log(std::string_view level);
void name_log(int rank, int size, std::string_view host);

}  // namespace sprat
