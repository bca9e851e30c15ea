// Contracts, said with values: require(count % size == 0, "count ", count, " ...").
#pragma once

#include <fmt/core.h>

#include <string>

#include "sprat/error.hpp"

namespace sprat {

/// The text of `count` arguments, one after another.
std::string joined_text(fmt::format_args args, int count);

/// The arguments' text, one after another.
template <class... Args>
std::string text(const Args&... args) {
  return joined_text(fmt::make_format_args(args...), sizeof...(args));
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
