// Numbers that communicators are known by: each is given once in a rank's life, so that no late
// message finds a new communicator.
#pragma once

#include <cstdint>

#include "comm/context/context.hpp"

namespace sprat::collectives {

/// The first number that this rank could take.
inline std::uint64_t free_number(comm::Context& context) {
  const auto token = context.take_token();
  std::uint64_t number = context.next_communicator;
  while (context.is_like_another(number)) {
    ++number;  // it ends: fewer communicators live, or have failed, than a tag can tell apart
  }
  return number;
}

/// Whether this rank can take it. It is gone even if another member refuses it.
inline bool reserve_number(comm::Context& context, std::uint64_t number) {
  const auto token = context.take_token();
  if (number < context.next_communicator) {
    return false;
  }
  context.next_communicator = number + 1;
  return !context.is_like_another(number);
}

}  // namespace sprat::collectives
