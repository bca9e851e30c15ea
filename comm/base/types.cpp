// Names and sizes of the public enumerations.
#include <array>

#include "sprat/buffer.hpp"
#include "sprat/error.hpp"

namespace sprat {

const char* name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid argument";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::lost_peer:
      return "lost peer";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::internal:
      return "internal error";
  }
  return "unknown error";
}

[[gnu::hot]] const char* name(DType dtype) noexcept {
  switch (dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return #name;
#include "sprat/dtypes.def"
  }
  return "unknown dtype";
}

std::span<const DType> all_dtypes() noexcept {
  static constexpr std::array dtypes = {
#define SPRAT_DTYPE(name, type, bytes) DType::name,
#include "sprat/dtypes.def"
  };
  return dtypes;
}

}  // namespace sprat
