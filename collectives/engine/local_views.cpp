// After a call of 64 KiB the caches hold nothing of these tables any more. So a new window clears
// no views, and what a peer announces again is not looked up again.
#include "collectives/engine/local_views.hpp"

#include <cerrno>

#include "collectives/engine/stall_watch.hpp"

namespace sprat::collectives {
namespace {

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

}  // namespace

LocalViews::LocalViews(comm::Context& context, const Membership& membership,
                       std::span<const int> peers)
    : context_(context),
      membership_(membership),
      places_(membership.world_ranks.size(), nowhere),
      views_(peers.size() + 1),
      found_(peers.size() + 1) {
  std::uint32_t next = 0;
  places_[membership.rank] = next++;
  for (const int peer : peers) {
    places_[peer] = next++;
  }
}

const LocalViews::View* LocalViews::find(int rank, Buffer buffer) const {
  const std::uint32_t place = places_[rank];
  if (place == nowhere) [[unlikely]] {
    throw Unmapped{membership_.world_ranks[rank], EFAULT};
  }
  const Kept& kept = views_[place][static_cast<std::size_t>(buffer)];
  return kept.window == windows_begun_ ? &kept.view : nullptr;
}

const LocalViews::View& LocalViews::keep(int rank, Buffer buffer, const View& view) {
  Kept& kept = views_[places_[rank]][static_cast<std::size_t>(buffer)];
  kept = {view, windows_begun_};
  return kept.view;
}

// A mapping that is kept keeps its segment's inode from becoming another's: equal places are the
// same memory.
[[gnu::hot]] const comm::PeerMemory& LocalViews::memory_at(const comm::MemoryRef& ref, int rank,
                                                           Buffer buffer) {
  Found& found = found_[places_[rank]][static_cast<std::size_t>(buffer)];
  if (!found.memory.mapping || found.ref != ref) {
    found.memory = {};  // if the next line throws
    found.memory = context_.view(membership_.world_ranks[rank], ref);
    found.ref = ref;
    if (found.memory.data == nullptr) {
      throw Unmapped{membership_.world_ranks[rank], errno};
    }
  }
  return found.memory;
}

}  // namespace sprat::collectives
