// Contracts of the model, said with values.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "sprat/error.hpp"

namespace sprat::train {

/// Throws Error{invalid_argument} with the message unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]] {
    throw Error(ErrorCode::invalid_argument, fmt::format(message, std::forward<Args>(args)...));
  }
}

}  // namespace sprat::train
