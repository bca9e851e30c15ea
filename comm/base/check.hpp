// Contracts, said with values: require(count % size == 0, "count ", count, " ...").
#pragma once

#include <fmt/format.h>

#include <string>

#include "sprat/error.hpp"

namespace sprat {

/// The arguments' text, one after another.
template <class... Args>
std::string text(const Args&... args) {
  std::string out;
  (fmt::format_to(std::back_inserter(out), "{}", args), ...);
  return out;
}

/// Throws Error{invalid_argument} with the arguments' text unless `condition` holds.
template <class... Args>
void require(bool condition, const Args&... args) {
  if (!condition) [[unlikely]] {
    throw Error(ErrorCode::invalid_argument, text(args...));
  }
}

/// Throws Error{unavailable} with the arguments' text unless `condition` holds.
template <class... Args>
void need(bool condition, const Args&... args) {
  if (!condition) [[unlikely]] {
    throw Error(ErrorCode::unavailable, text(args...));
  }
}

}  // namespace sprat
