#include "io/slot_space.hpp"

#include <iterator>
#include <utility>

namespace sprat::io {

void SlotSpace::add_gap(std::uint64_t offset, std::size_t bytes) {
  gaps_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void SlotSpace::erase_gap(Gaps::const_iterator gap) {
  by_size_.erase({gap->second, gap->first});
  gaps_.erase(gap);
}

/// Best fit: the smallest gap that is large enough, so that large ones are there for large slots;
/// the first of equal ones. Readers take thousands of slots, so gaps are found by their size.
std::optional<std::uint64_t> SlotSpace::take(std::size_t bytes) {
  if (bytes == 0) {
    return 0;  // takes no room, wherever it is
  }
  const auto best = by_size_.lower_bound({bytes, 0});
  if (best != by_size_.end()) {
    const auto [length, offset] = *best;
    erase_gap(gaps_.find(offset));
    if (length > bytes) {
      add_gap(offset + bytes, length - bytes);
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
  // Neighbours become one gap, and the last one is no gap but the end.
  const auto behind = gaps_.lower_bound(offset);
  if (behind != gaps_.end() && behind->first == offset + bytes) {
    bytes += behind->second;
    erase_gap(behind);
  }
  const auto next = gaps_.lower_bound(offset);
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      erase_gap(before);
    }
  }
  if (offset + bytes == end_) {
    end_ = offset;
    return;
  }
  add_gap(offset, bytes);
}

}  // namespace sprat::io
