#include "io/slot_space.hpp"

#include <iterator>
#include <utility>

namespace sprat::io {

/// Best fit: the smallest gap that is large enough, so that large ones are there for large slots.
std::optional<std::uint64_t> SlotSpace::take(std::size_t bytes) {
  if (bytes == 0) {
    return 0;  // takes no room, wherever it is
  }
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second >= bytes && (best == gaps_.end() || gap->second < best->second)) {
      best = gap;
    }
  }
  if (best != gaps_.end()) {
    const auto [offset, length] = *best;
    gaps_.erase(best);
    if (length > bytes) {
      gaps_.emplace(offset + bytes, length - bytes);
    }
    return offset;
  }
  // Growing is bounded by addresses, not by the sum of what is held: a place never takes more than
  // the limit, even if gaps are too small to be of use.
  if (bytes > limit_ - end_) {
    return std::nullopt;
  }
  return std::exchange(end_, end_ + bytes);
}

void SlotSpace::give(std::uint64_t offset, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  auto gap = gaps_.emplace(offset, bytes).first;
  // Neighbours become one gap, and the last one is no gap but the end.
  const auto behind = std::next(gap);
  if (behind != gaps_.end() && gap->first + gap->second == behind->first) {
    gap->second += behind->second;
    gaps_.erase(behind);
  }
  if (gap != gaps_.begin()) {
    const auto before = std::prev(gap);
    if (before->first + before->second == gap->first) {
      before->second += gap->second;
      gaps_.erase(gap);
      gap = before;
    }
  }
  if (gap->first + gap->second == end_) {
    end_ = gap->first;
    gaps_.erase(gap);
  }
}

}  // namespace sprat::io
