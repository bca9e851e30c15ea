#include "plugins/nccl_net/guard.hpp"

#include <atomic>
#include <cerrno>
#include <string>

#include "sprat/error.hpp"

namespace sprat::nccl_net {
namespace {

/// NCCL gives the same function to each communicator of a process, so one place is enough; and
/// older versions give it once, without any communicator that it could belong to.
std::atomic<Logger>& logger() {
  static std::atomic<Logger> place{nullptr};
  return place;
}

}  // namespace

void set_logger(Logger given) noexcept {
  // Relaxed: a function's address carries nothing else with it.
  logger().store(given, std::memory_order_relaxed);
}

void log_line(LogLevel level, unsigned long flags, std::string_view line) noexcept {
  if (const Logger log = logger().load(std::memory_order_relaxed)) {
    log(level, flags, "sprat", 0, "NET/sprat: %.*s", static_cast<int>(line.size()), line.data());
  }
}

Result complain(std::string_view call, const std::exception& error) noexcept {
  const auto* ours = dynamic_cast<const Error*>(&error);
  try {
    log_line(LogLevel::warn, log_net, std::string(call) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::warn, log_net, call);
  }
  if (ours == nullptr) {
    return Result::system_error;
  }
  switch (ours->code()) {
    case ErrorCode::invalid_argument:
    case ErrorCode::internal:
      return Result::internal_error;
    case ErrorCode::lost_peer:
    case ErrorCode::aborted:
      return Result::remote_error;
    case ErrorCode::mismatch:
      return Result::invalid_usage;
    case ErrorCode::unavailable:
    case ErrorCode::timeout:
      return Result::system_error;
  }
  return Result::system_error;
}

Result result_of(int error) noexcept {
  switch (error) {
    case EMSGSIZE:
      return Result::invalid_usage;
    case ECONNRESET:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Result::remote_error;
    default:
      return Result::system_error;
  }
}

}  // namespace sprat::nccl_net
