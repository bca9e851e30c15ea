#include "device/slab.hpp"

#include <algorithm>
#include <utility>

#include "device/chunks.hpp"

namespace sprat::device {
Ring::Place Ring::take(std::size_t bytes, std::uint32_t number, std::uint32_t ended) {
  const auto has_ended = [ended](const Piece& piece) {
    return static_cast<std::int32_t>(ended - (piece.number + 1)) >= 0;
  };
  const auto under_way = std::ranges::find_if_not(pieces_, has_ended);
  pieces_.erase(pieces_.begin(), under_way);
  if (next_ + bytes > bytes_) {
    next_ = 0;
  }
  Place place{next_, std::nullopt};
  // Flights end in their order: behind the last one that is in the way all before have ended.
  for (std::size_t i = pieces_.size(); i-- > 0;) {
    if (pieces_[i].begin < next_ + bytes && next_ < pieces_[i].end) {
      place.free_behind = pieces_[i].number + 1;
      pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      break;
    }
  }
  pieces_.push_back({next_, next_ + bytes, number});
  next_ += bytes;
  return place;
}

PinnedMemory::PinnedMemory(Device& device, std::size_t bytes) : memory_(bytes) {
  device.pin(memory_.data(), memory_.bytes());
  device_ = &device;
}

PinnedMemory::~PinnedMemory() {
  if (device_ != nullptr) {
    device_->unpin(memory_.data());
  }
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), memory_(std::move(other.memory_)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  PinnedMemory taken(std::move(other));
  std::swap(device_, taken.device_);
  std::swap(memory_, taken.memory_);
  return *this;
}

Slab::Slab(Device& device, std::size_t bytes) : device_(device), ring_(aligned(bytes)) {
  memories_.emplace_back(device, ring_.bytes());
}

Slab::Place Slab::take(std::size_t bytes, std::uint32_t number, std::uint32_t ended) {
  // Each flight has a place of its own, though it may need no memory.
  bytes = std::max(aligned(bytes), stand_in_alignment);
  if (bytes > ring_.bytes()) {
    // With a quarter more, so that sizes that grow step by step pin a few times only.
    const std::size_t grown = aligned(bytes + bytes / 4);
    memories_.emplace_back(device_, grown);
    ring_ = Ring(grown);
  }
  const Ring::Place place = ring_.take(bytes, number, ended);
  return {memories_.back().data() + place.offset, place.free_behind};
}

}  // namespace sprat::device
