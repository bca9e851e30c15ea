#include "plugins/torch/native/errors.hpp"

#include <c10/util/Exception.h>

namespace sprat::pytorch {

std::exception_ptr as_torch_error(const Error& error, const std::string& more) {
  // The exception is made by hand, since throwing it by a macro would add a trace of C++ frames
  // that buries the message.
  std::string message = error.what() + more;
  if (error.code() == ErrorCode::timeout) {
    message +=
        "; the timeout is the call's, or the group's (timeout= of init_process_group, new_group)";
  }
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  if (error.code() == ErrorCode::invalid_argument) {
    return std::make_exception_ptr(c10::ValueError(here, message));
  }
  return std::make_exception_ptr(c10::DistBackendError(here, message));
}

}  // namespace sprat::pytorch
