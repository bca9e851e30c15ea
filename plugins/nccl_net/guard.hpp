// Errors in NCCL's words. Nothing throws through its interfaces.
#pragma once

#include <exception>
#include <string_view>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

/// Where complaints go from now on; the last one that was given counts. Any thread.
void set_logger(Logger logger) noexcept;
void log_line(LogLevel level, unsigned long flags, std::string_view line) noexcept;
/// Says why a call failed, and which code that is.
Result complain(std::string_view call, const std::exception& error) noexcept;

template <class Call>
Result guard(std::string_view name, Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& error) {
    return complain(name, error);
  }
}

/// Of a connection or a request that ended with this errno.
Result result_of(int error) noexcept;

}  // namespace sprat::nccl_net
