// What all versions of NCCL's plugin interfaces have in common, in our own words: numbers and
// layouts are NCCL's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sprat::nccl_net {

/// ncclResult_t.
enum class Result : int {
  success = 0,
  system_error = 2,    ///< Of the network or the operating system.
  internal_error = 3,  ///< NCCL broke the contract of this interface, or we did.
  invalid_usage = 5,   ///< A message was longer than its receive.
  remote_error = 6     ///< The other end is gone.
};

/// ncclDebugLogLevel, ncclDebugLogSubSys.
enum class LogLevel : int { warn = 2, info = 3 };
inline constexpr unsigned long log_init = 0x1, log_net = 0x10, log_tuning = 0x40,
                               log_profile = 0x4000;
/// ncclDebugLogger_t.
using Logger = void (*)(LogLevel level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
/// ncclProfilerCallback_t.
using ProfilerCallback = Result (*)(void** event, int type, void* parent, std::int64_t plugin,
                                    void* data);

/// Bits of ptrSupport, and what regMr is told.
inline constexpr int pointer_host = 1;
/// Bytes of a handle, and how many requests a communicator has under way at most.
inline constexpr std::size_t handle_bytes = 128;
inline constexpr int most_requests = 32;
/// MAX_NET_SIZE: NCCL itself cuts what is longer.
inline constexpr std::size_t most_bytes = std::size_t{1} << 30;

/// ncclNetDeviceType: NCCL's own kernels do not speak to this network.
enum class NetDeviceType : int { host = 0 };
/// ncclNetDeviceHandle_v7_t and later: only asked for by devices that are no host's.
struct NetDeviceHandle;

}  // namespace sprat::nccl_net
