// Held reads keep their room in the budget: later samples that were read meanwhile could otherwise
// take all of it, and the one that is waited for would find none.
#include "io/loader/lustre/released_reads.hpp"

#include <limits>
#include <utility>

#include "sprat/error.hpp"

namespace sprat::io {

ReleasedReads::ReleasedReads(std::shared_ptr<Placement> placement, RestorerOptions restoring,
                             Scheduler& scheduler)
    : placement_(std::move(placement)),
      files_(restoring.files),
      scheduler_(scheduler),
      restorer_(std::move(restoring)) {}

void ReleasedReads::advance(std::uint64_t position) {
  position_ = position;
  restorer_.advance(position);
}

PlannedFile ReleasedReads::place(std::uint32_t file, std::uint32_t alignment,
                                 const Placement::Open& open) {
  const Placement::Placed placed = placement_->place(file, alignment, open);
  if (placed.released && awaited_.try_emplace(file, Awaited{.position = position_}).second) {
    scheduler_.hold(file);
    restorer_.needs(file, position_);
  }
  return placed.file;
}

std::vector<ReleasedReads::LostRead> ReleasedReads::settle() {
  for (const EndedRestore& end : restorer_.take_ended()) {
    // Where its bytes lie is known only now.
    placement_->forget(end.file);
    const auto awaited = awaited_.find(end.file);
    if (awaited == awaited_.end()) {
      continue;
    }
    if (end.lost) {
      awaited->second.lost = std::make_exception_ptr(
          Error(ErrorCode::unavailable, lost_text(files_->path(end.file), end.why)));
    } else {
      scheduler_.resume(end.file);
      awaited_.erase(awaited);
    }
  }
  std::vector<LostRead> lost;
  for (const auto& [file, awaited] : awaited_) {
    if (awaited.lost == nullptr) {
      continue;
    }
    for (const std::uint64_t request : scheduler_.end_held(file)) {
      lost.push_back({.request = request, .error = awaited.lost});
    }
  }
  return lost;
}

ReleasedState ReleasedReads::state() {
  const RestoreProgress progress = restorer_.progress();
  ReleasedState state{.reads_held = scheduler_.held(),
                      .restored_bytes = progress.restored_bytes -
                                        std::exchange(restored_told_, progress.restored_bytes),
                      .left_bytes = progress.left_bytes};
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [file, awaited] : awaited_) {
    if (awaited.lost == nullptr && awaited.position < first) {
      first = awaited.position;
      state.waits_for = files_->path(file);
    }
  }
  return state;
}

}  // namespace sprat::io
