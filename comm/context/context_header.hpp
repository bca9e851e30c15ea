// What lies at the start of every control segment.
#pragma once

#include <atomic>
#include <cstdint>

namespace sprat::comm {

/// Peers can write to its page, and do to ring.
struct ControlHeader {
  std::atomic<std::uint64_t> nonce;                 ///< Proves that a mapping is the right one.
  alignas(64) std::atomic<std::uint32_t> bell;      ///< Counts rings; a futex.
  alignas(64) std::atomic<std::uint32_t> sleepers;  ///< Threads that sleep on the bell.
  /// 1 if register_fences() was. Set before its peers map this.
  std::atomic<std::uint32_t> fences;
  /// Not 0 once this rank's job has failed: set before a caller can have its buffers back.
  alignas(64) std::atomic<std::uint32_t> failed;
};

}  // namespace sprat::comm
