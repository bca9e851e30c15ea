// The library's one logger.
#include "comm/base/log.hpp"

#include <pthread.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

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

/// Standard error, with a lock that can be taken from outside. fork() holds it, so that in the
/// child no vanished thread does.
class StandardError final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::fwrite(line.data(), 1, line.size(), stderr);
    flush_();
  }
  void flush_() override { std::fflush(stderr); }
};

StandardError& standard_error() {
  // Never destroyed: threads may still speak while the process exits.
  static StandardError& sink = *[] {
    auto* made = new StandardError;
    pthread_atfork([] { standard_error().lock(); }, [] { standard_error().unlock(); },
                   [] { standard_error().unlock(); });
    return made;
  }();
  return sink;
}

/// The last cause of a failure that was said. Process-wide, as the log is.
struct Said {
  std::mutex mutex;  ///< Guards cause.
  std::string cause;
};

Said& said() {
  static Said& instance = *new Said;  // never destroyed, as the logger
  return instance;
}

}  // namespace

spdlog::logger& Log::logger() {
  static spdlog::logger& logger = *[] {  // never destroyed either
    auto* made = new spdlog::logger(
        "sprat", spdlog::sink_ptr(&standard_error(), [](spdlog::sinks::sink*) {}));
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

void Log::failure(std::string_view cause, std::string_view more) const {
  if (!says(LogLevel::error)) {
    return;
  }
  // The cause is remembered after it was written: the command asks has_said() so as not to say the
  // same again when the Error reaches it.
  error("{}{}", cause, more);
  const std::lock_guard lock(said().mutex);
  said().cause = cause;
}

bool Log::has_said(std::string_view complaint) const {
  const std::lock_guard lock(said().mutex);
  return !said().cause.empty() && complaint.find(said().cause) != complaint.npos;
}

void configure_log(std::string_view level) {
  // from_str() gives `off` for every text that it does not know.
  const auto parsed = spdlog::level::from_str(std::string(level));
  require(parsed != spdlog::level::off || level == "off", "SPRAT_LOG is \"", level,
          "\"; it must be trace, debug, info, warn, error or off");
  Log::logger().set_level(parsed);
}

void name_log(int rank, int size, std::string_view host) {
  Log::logger().set_pattern(text("[sprat ", rank, "/", size, " ", host, "] %l: %v"));
}

}  // namespace sprat
