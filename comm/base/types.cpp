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

const char* name(DType dtype) noexcept {
  switch (dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return #name;
#include "sprat/dtypes.def"
  }
  return "unknown dtype";
}

std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return bytes;
#include "sprat/dtypes.def"
  }
  return 0;
}

std::span<const DType> all_dtypes() noexcept {
  static constexpr std::array dtypes = {
#define SPRAT_DTYPE(name, type, bytes) DType::name,
#include "sprat/dtypes.def"
  };
  return dtypes;
}

const char* name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
  }
  return "unknown op";
}

std::span<const ReduceOp> all_reduce_ops() noexcept {
  static constexpr std::array ops = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                     ReduceOp::avg};
  return ops;
}

}  // namespace sprat
