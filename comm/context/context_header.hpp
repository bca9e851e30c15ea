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
  /// 1 while a thread polls descriptors instead: who rings takes it back, and writes to the pipe.
  std::atomic<std::uint32_t> polling;
  /// 1 once a peer could not write to the pipe: then nobody polls any more.
  std::atomic<std::uint32_t> pipe_fails;
  /// This rank's WakePipe: WakePipe::Name. Set before anybody polls.
  std::atomic<std::int32_t> pipe_descriptor;
  std::atomic<std::uint64_t> pipe_inode;
  /// 1 if register_fences() was. Set before its peers map this.
  std::atomic<std::uint32_t> fences;
};

}  // namespace sprat::comm
