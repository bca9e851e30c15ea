// How Sprat's errors become NCCL's codes.
#include "plugins/nccl_abi/errors.hpp"

#include <mutex>
#include <new>

namespace sprat::nccl {
namespace {

struct Last {
  std::mutex mutex;  ///< Guards the message.
  std::string message;
};

/// Never destroyed: threads may ask while the process ends.
Last& last() {
  static Last& kept = *new Last;
  return kept;
}

}  // namespace

void refuse(ncclResult_t result, const std::string& message) { throw Refusal(result, message); }

// NCCL tells what a program did wrong (argument, usage) from what befell it: the machine, or
// another rank. Programs shrink or restart upon the last one only.
ncclResult_t result_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return ncclInvalidArgument;
    case ErrorCode::unavailable:
      return ncclSystemError;
    case ErrorCode::mismatch:
      return ncclInvalidUsage;
    case ErrorCode::timeout:
    case ErrorCode::lost_peer:
    case ErrorCode::aborted:
      return ncclRemoteError;
    case ErrorCode::internal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

Complaint current_complaint() noexcept {
  try {
    try {
      throw;
    } catch (const Refusal& refusal) {
      return {refusal.result(), refusal.what()};
    } catch (const Error& error) {
      return {result_of(error.code()), error.what()};
    } catch (const std::bad_alloc&) {
      return {ncclSystemError, "out of memory"};
    } catch (const std::exception& error) {
      return {ncclInternalError, error.what()};
    } catch (...) {
      return {ncclInternalError, "an exception of unknown type"};
    }
  } catch (...) {
    return {ncclSystemError, {}};  // no memory even for the message; the code still tells
  }
}

ncclResult_t remember(const Complaint& complaint) noexcept {
  try {
    const std::lock_guard lock(last().mutex);
    last().message = complaint.message;
  } catch (const std::exception&) {
    // No memory for the message, or no lock: the code still tells.
  }
  return complaint.result;
}

// A pointer into the process's message would change under its reader when another thread fails.
const char* last_message() noexcept {
  thread_local std::string mine;
  try {
    const std::lock_guard lock(last().mutex);
    mine = last().message;
  } catch (const std::exception&) {
    mine.clear();
  }
  return mine.c_str();
}

}  // namespace sprat::nccl
