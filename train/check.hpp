// Refusals: what a caller or a configuration got wrong, said with the values.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "sprat/error.hpp"

namespace sprat::train {

/// Throws Error{invalid_argument} with the message unless it holds.
template <class... Args>
void check(bool holds, fmt::format_string<Args...> message, Args&&... args) {
  if (!holds) [[unlikely]] {
    throw Error(ErrorCode::invalid_argument, fmt::format(message, std::forward<Args>(args)...));
  }
}

}  // namespace sprat::train
