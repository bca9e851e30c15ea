// What goes wrong, as one exception type: who, what, which values, and the remedy.
#pragma once

#include <stdexcept>
#include <string>

#include "sprat/export.hpp"

namespace sprat {

enum class ErrorCode {
  invalid_argument,  ///< The caller broke a contract; nothing was sent.
  unavailable,       ///< Something the machine or the job lacks; set-up failed.
  timeout,           ///< A deadline passed; the message says who was waited for.
  lost_peer,         ///< A rank died or left while others needed it.
  mismatch,          ///< Ranks disagree on what they call together.
  aborted,           ///< A rank called abort() or revoke().
  internal,          ///< A defect of Sprat or of a library below it.
};

/// "invalid_argument" and so on.
SPRAT_API const char* name(ErrorCode code) noexcept;

/// What fails is thrown as this: a code, the sentence what() with names and values, and who is to
/// blame.
class SPRAT_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int rank = -1)
      : std::runtime_error(message), code_(code), rank_(rank) {}
  ErrorCode code() const noexcept { return code_; }
  /// The rank at fault in the job's numbering (lost, late, disagreeing); -1 if none.
  int rank() const noexcept { return rank_; }

 private:
  ErrorCode code_;
  int rank_;
};

}  // namespace sprat
