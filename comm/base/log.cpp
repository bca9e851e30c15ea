// The library's one logger.
#include "comm/base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include "comm/base/check.hpp"

namespace sprat {

spdlog::logger& log() {
  // Never destroyed: threads may still speak while the process exits.
  static spdlog::logger& logger = *[] {
    auto* made = new spdlog::logger("sprat", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[sprat] %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return logger;
}

void configure_log(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  require(parsed != spdlog::level::off || level == "off", "SPRAT_LOG is \"", level,
          "\"; it must be trace, debug, info, warn, error or off");
  log().set_level(parsed);
}

void name_log(int rank, int size, std::string_view host) {
  log().set_pattern(text("[sprat ", rank, "/", size, " ", host, "] %l: %v"));
}

}  // namespace sprat
