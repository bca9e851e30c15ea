// Where exceptions end: every C function runs inside guard().
#pragma once

#include <string>

#include "sprat/error.hpp"
#include "sprat/sprat.h"

namespace sprat::c {

/// What sprat_last_error() returns on this thread.
std::string& last_error() noexcept;
/// Keeps the message of the exception being handled and returns its status.
sprat_status translate_current_exception() noexcept;

/// Runs `body`; an exception becomes a status and this thread's last error.
template <class Body>
sprat_status guard(Body&& body) noexcept {
  try {
    body();
    return SPRAT_ok;
  } catch (...) {
    return translate_current_exception();
  }
}

/// Throws Error{invalid_argument} "`what` is null" unless `pointer` is not; returns what it points
/// to.
template <class T>
T& deref(T* pointer, const char* what) {
  if (pointer == nullptr) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " is null");
  }
  return *pointer;
}

}  // namespace sprat::c
