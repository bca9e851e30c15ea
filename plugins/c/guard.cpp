// Translates exceptions to statuses and keeps the last message of a thread.
#include "plugins/c/guard.hpp"

#include <new>

namespace sprat::c {
namespace {

sprat_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return SPRAT_invalid_argument;
    case ErrorCode::unavailable:
      return SPRAT_unavailable;
    case ErrorCode::timeout:
      return SPRAT_timeout;
    case ErrorCode::lost_peer:
      return SPRAT_lost_peer;
    case ErrorCode::mismatch:
      return SPRAT_mismatch;
    case ErrorCode::aborted:
      return SPRAT_aborted;
    case ErrorCode::internal:
      return SPRAT_internal;
  }
  return SPRAT_internal;
}

sprat_status remember(sprat_status status, const char* message) noexcept {
  try {
    // Copying the message may need memory, and guard() must not throw.
    last_error() = message;
  } catch (const std::bad_alloc&) {
    last_error().clear();  // no memory even for the message; the status still tells
  }
  return status;
}

}  // namespace

std::string& last_error() noexcept {
  thread_local std::string message;
  return message;
}

sprat_status translate_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return remember(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return remember(SPRAT_unavailable, "out of memory");
  } catch (const std::exception& error) {
    return remember(SPRAT_internal, error.what());
  } catch (...) {
    return remember(SPRAT_internal, "an exception of unknown type");
  }
}

}  // namespace sprat::c
