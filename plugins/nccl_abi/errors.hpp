// Where exceptions end: every exported function runs inside guard(), and ncclGetLastError() tells
// what was said.
#pragma once

#include <string>
#include <utility>

#include "plugins/nccl_abi/abi.h"
#include "sprat/error.hpp"

namespace sprat::nccl {

/// An error that NCCL's users know by another code than its ErrorCode has.
class Refusal final : public Error {
 public:
  Refusal(ncclResult_t result, const std::string& message)
      : Error(ErrorCode::invalid_argument, message), result_(result) {}
  ncclResult_t result() const noexcept { return result_; }

 private:
  ncclResult_t result_;
};

[[noreturn]] void refuse(ncclResult_t result, const std::string& message);
/// Throws ncclInvalidArgument "`what` is null" unless `pointer` is not; returns what it points to.
template <class T>
T& deref(T* pointer, const char* what) {
  if (pointer == nullptr) {
    refuse(ncclInvalidArgument, std::string(what) + " is null");
  }
  return *pointer;
}

/// What ended an operation or a communicator, for those who ask later.
struct Complaint {
  ncclResult_t result = ncclSuccess;
  std::string message;
};
/// Of the exception being handled.
Complaint current_complaint() noexcept;
ncclResult_t result_of(ErrorCode code) noexcept;

/// Keeps a complaint for ncclGetLastError(), which any thread of the process may ask; its result.
ncclResult_t remember(const Complaint& complaint) noexcept;
/// The last one of the process, kept for this thread until it asks again. Never null.
const char* last_message() noexcept;

/// Runs `body`, which returns an ncclResult_t; an exception becomes one, and the last error.
template <class Body>
ncclResult_t guard(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return remember(current_complaint());
  }
}

}  // namespace sprat::nccl
