// The library's one logger.
#include "comm/base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

spdlog::logger& Log::logger() {
  // Never destroyed: threads may still speak while the process exits.
  static spdlog::logger& logger = *[] {
    auto* made = new spdlog::logger("sprat", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[sprat] %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return logger;
}

bool Log::says(LogLevel level) const { return logger().should_log(spdlog_level(level)); }

void Log::write(LogLevel level, fmt::string_view format, fmt::format_args args) const {
  if (says(level)) {
    logger().log(spdlog_level(level), spdlog::string_view_t(fmt::vformat(format, args)));
  }
}

void configure_log(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  require(parsed != spdlog::level::off || level == "off", "SPRAT_LOG is \"", level,
          "\"; it must be trace, debug, info, warn, error or off");
  Log::logger().set_level(parsed);
}

void name_log(int rank, int size, std::string_view host) {
  Log::logger().set_pattern(text("[sprat ", rank, "/", size, " ", host, "] %l: %v"));
}

}  // namespace sprat
