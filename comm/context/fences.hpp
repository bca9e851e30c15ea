// Two fences that work together, of which one costs next to nothing: Linux's membarrier().
//
// A publisher stores, calls light_fence(), then loads; a sleeper stores, calls heavy_fence(), then
// loads. At least one of them sees the other's store, as if both fences were full ones.
#pragma once

#include <atomic>

namespace sprat::comm {

/// Makes this process one that heavy_fence() of any process reaches. False if the kernel does not
/// let it: then light_fence() here is not enough, and heavy_fence() must not be relied on.
bool register_fences() noexcept;

/// Orders only what the compiler does.
inline void light_fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// Makes every running thread of registered processes pass a full fence. Some microseconds.
void heavy_fence() noexcept;

}  // namespace sprat::comm
