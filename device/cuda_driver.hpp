// CUDA's driver, loaded when it is asked for: our own declarations of the calls that we make, so
// that one binary serves machines with and without it, and no toolkit is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sprat::device {

// As cuda.h has them, with enumerations as the integers that they are; a test compares where
// cuda.h is found.
using Result = int;
using Enumerator = int;
using Address = unsigned long long;
using CudaContext = struct CudaContextTag*;
using CudaStream = struct CudaStreamTag*;
using CudaEvent = struct CudaEventTag*;
using HostFunction = void(void*);

namespace cuda {
inline constexpr Result success = 0, not_ready = 600;
inline constexpr Result capture_implicit =
    906;  ///< The default stream, while another one captures.
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_without_timing = 2;
inline constexpr unsigned register_portable = 1, register_mapped = 2;
inline constexpr unsigned wait_until_reached = 0, write_with_barrier = 0;
inline constexpr Enumerator capture_none = 0, capture_relaxed = 2;
inline constexpr Enumerator attribute_same_host_pointer = 91;
inline constexpr Enumerator pointer_memory_type = 2, pointer_is_managed = 8, pointer_device = 9;
inline constexpr unsigned memory_type_device = 2;
}  // namespace cuda

/// The driver's functions.
struct CudaDriver {
#define SPRAT_CUDA_CALL(member, exported, arguments) Result(*member) arguments = nullptr;
#include "device/cuda_calls.def"

  /// Throws Error{unavailable} with the driver's words unless `result` is success.
  void check(Result result, const char* call) const;
};

/// The driver, begun; or null, and why. Loaded once a process, at the first call. Any thread.
struct FoundCudaDriver {
  const CudaDriver* driver = nullptr;
  std::string missing;  ///< Why there is none.
};
const FoundCudaDriver& cuda_driver();

}  // namespace sprat::device
