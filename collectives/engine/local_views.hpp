// How a rank sees the buffers of its host's ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "collectives/engine/membership.hpp"
#include "collectives/plan/plan.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// Views of one window at a time, each made when it is first asked for; and from call to call, what
/// lies where peers announced their buffers last. Ranks of other hosts have none. Its context's
/// token is held.
class LocalViews final {
 public:
  /// A rank's buffer in the window, as seen from here.
  struct View {
    const std::byte* base = nullptr;
    std::size_t block_stride = 0;         ///< Elements.
    const BlockCounts* counts = nullptr;  ///< Where blocks lie, if they differ.
    std::size_t skip = 0;                 ///< Elements before the window, in each block.
    std::size_t bytes = std::numeric_limits<std::size_t>::max();  ///< From `base` on, if checked.
    bool foreign = false;  ///< `base` is an address in another process.
  };

  /// Context and membership outlive it. `peers`: those of this host.
  LocalViews(comm::Context& context, const Membership& membership, std::span<const int> peers);

  /// All views are to be made anew, since where staged blocks lie depends on the window.
  void begin_window() { ++windows_begun_; }
  /// Null until keep(). Throws Unmapped of a rank of another host.
  const View* find(int rank, Buffer buffer) const;
  const View& keep(int rank, Buffer buffer, const View& view);
  /// What lies where the rank announced its buffer: mapped as long as it announces the same. Throws
  /// Unmapped.
  const comm::PeerMemory& memory_at(const comm::MemoryRef& ref, int rank, Buffer buffer);

 private:
  struct Kept {
    View view;
    std::uint64_t window = 0;  ///< Windows begun when it was made.
  };
  struct Found {
    comm::MemoryRef ref;
    comm::PeerMemory memory;
  };

  comm::Context& context_;
  const Membership& membership_;
  std::vector<std::uint32_t> places_;                  ///< By rank.
  std::vector<std::array<Kept, buffer_kinds>> views_;  ///< By place and Buffer.
  std::vector<std::array<Found, buffer_kinds>> found_;
  std::uint64_t windows_begun_ = 0;
};

}  // namespace sprat::collectives
