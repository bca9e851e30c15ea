// What a rank that fails in the middle of a collective engine's work tells the others.
#pragma once

#include <exception>
#include <string>

#include "comm/base/check.hpp"
#include "sprat/error.hpp"

namespace sprat {

/// The error of `cause`, with its code and rank, and a text that begins with `where`.
inline Error failure_at(const std::string& where, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& one) {
    return Error(one.code(), text(where, ": ", one.what()), one.rank());
  } catch (const std::exception& other) {
    return Error(ErrorCode::aborted, text(where, ": ", other.what()));
  } catch (...) {
    return Error(ErrorCode::aborted, text(where, ": an exception that says nothing"));
  }
}

}  // namespace sprat
