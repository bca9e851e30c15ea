#include "device/slab.hpp"

#include <algorithm>
#include <utility>

#include "device/chunks.hpp"

namespace sprat::device {
namespace {

/// Small enough that small operations waste little, and large enough that the list of gaps of a
/// slab of 32 MiB stays short.
constexpr std::size_t page_bytes = 4096;
static_assert(page_bytes % stand_in_alignment == 0);

constexpr std::size_t pages_of(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + page_bytes - 1) / page_bytes);
}

}  // namespace

PageMap::PageMap(std::size_t pages) {
  gaps_.reserve(256);
  if (pages > 0) {
    gaps_.push_back({0, pages});
  }
}

std::optional<std::size_t> PageMap::take(std::size_t pages) {
  const auto fits = [&](const Gap& gap) { return gap.pages >= pages; };
  const auto found = std::ranges::find_if(gaps_, fits);
  if (found == gaps_.end()) {
    return std::nullopt;
  }
  const std::size_t first = found->first;
  found->first += pages;
  found->pages -= pages;
  if (found->pages == 0) {
    gaps_.erase(found);
  }
  return first;
}

void PageMap::give(std::size_t first, std::size_t pages) {
  const auto next = std::ranges::find_if(gaps_, [&](const Gap& gap) { return gap.first > first; });
  const bool joins_next = next != gaps_.end() && first + pages == next->first;
  const bool joins_last =
      next != gaps_.begin() && std::prev(next)->first + std::prev(next)->pages == first;
  if (joins_last) {
    std::prev(next)->pages += pages + (joins_next ? next->pages : 0);
    if (joins_next) {
      gaps_.erase(next);
    }
  } else if (joins_next) {
    next->first = first;
    next->pages += pages;
  } else {
    gaps_.insert(next, {first, pages});
  }
}

std::size_t PageMap::free() const noexcept {
  std::size_t pages = 0;
  for (const Gap& gap : gaps_) {
    pages += gap.pages;
  }
  return pages;
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

Slab::Slab(Device& device, std::size_t bytes)
    : device_(device), memory_(device, pages_of(bytes) * page_bytes), pages_(pages_of(bytes)) {}

std::byte* Slab::take(std::size_t bytes) {
  if (bytes <= memory_.bytes()) {
    const auto first = pages_.take(pages_of(bytes));
    return first ? memory_.data() + *first * page_bytes : nullptr;
  }
  if (large_is_taken_) {
    return nullptr;
  }
  if (large_.bytes() < bytes) {
    large_ = PinnedMemory();  // both at once may be more than there is
    // With a quarter more, so that sizes that grow step by step pin a few times only.
    large_ = PinnedMemory(device_, bytes + bytes / 4);
  }
  large_is_taken_ = true;
  return large_.data();
}

void Slab::give(std::byte* piece, std::size_t bytes) noexcept {
  if (piece == large_.data()) {
    large_is_taken_ = false;
  } else {
    pages_.give(static_cast<std::size_t>(piece - memory_.data()) / page_bytes, pages_of(bytes));
  }
}

}  // namespace sprat::device
