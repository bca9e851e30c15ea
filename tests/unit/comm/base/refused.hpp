// What a broken contract is refused with.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "sprat/error.hpp"

namespace sprat {

/// The message of the Error{invalid_argument} that `call` throws.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sprat
