// Sprat's errors as PyTorch's.
#pragma once

#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <string>

#include "sprat/error.hpp"

namespace sprat::pytorch {

/// c10::ValueError for a broken contract, else c10::DistBackendError: ValueError and
/// torch.distributed.DistBackendError in Python.
std::exception_ptr as_torch_error(const Error& error, const std::string& more = "");

/// Calls `function`; what Sprat throws leaves as PyTorch's.
template <class Function>
auto guard(Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    std::rethrow_exception(as_torch_error(error));
  }
}

}  // namespace sprat::pytorch
