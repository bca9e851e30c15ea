// Rooms come in eight sizes for each power of two, so that memory of one batch fits the next one
// though their sizes differ a little; what a room has more than was asked for is never touched.
#include "io/loader/memory_pool.hpp"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t page_bytes = 4096;
/// From here on a mapping may be of huge pages, which take a 512th of the faults.
constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

std::byte* map_room(std::uint64_t room) {
  void* memory = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(memory != MAP_FAILED, "no memory for ", room, " bytes of samples: ", std::strerror(errno),
       "; a smaller memory_bytes, or a smaller batch, takes less");
  if (room >= huge_page_bytes) {
    madvise(memory, room, MADV_HUGEPAGE);  // refused where there are none: then pages are small
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::shared_ptr<MemoryPool> MemoryPool::make(std::uint64_t most_bytes) {
  return std::shared_ptr<MemoryPool>(new MemoryPool(most_bytes));
}

MemoryPool::~MemoryPool() { shrink_to(0); }

std::uint64_t MemoryPool::room_of(std::uint64_t bytes) {
  const std::uint64_t step = std::max(page_bytes, std::bit_floor(std::max(bytes, page_bytes)) / 8);
  return (std::max(bytes, page_bytes) + step - 1) / step * step;  // at most an eighth too much
}

PooledMemory MemoryPool::take(std::uint64_t bytes) {
  const std::uint64_t room = room_of(bytes);
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find(room); found != free_.end()) {
      memory = found->second;
      free_.erase(found);
      free_bytes_ -= room;
    } else {
      // Rooms of other sizes make way, lest they add up to more than the pool may keep.
      shrink_to(most_bytes_ > taken_bytes_ + room ? most_bytes_ - taken_bytes_ - room : 0);
    }
    taken_bytes_ += room;
  }
  try {
    memory = memory == nullptr ? map_room(room) : memory;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    taken_bytes_ -= room;
    throw;
  }
  // Batches may outlive their loader, and so the pool.
  auto pool = shared_from_this();
  return PooledMemory(new std::span<std::byte>(memory, bytes),
                      [pool, memory, room](std::span<std::byte>* span) {
                        delete span;
                        pool->give_back(memory, room);
                      });
}

std::uint64_t MemoryPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return taken_bytes_ + free_bytes_;
}

std::uint64_t MemoryPool::taken_bytes() const {
  const std::lock_guard lock(mutex_);
  return taken_bytes_;
}

void MemoryPool::give_back(std::byte* memory, std::uint64_t room) noexcept {
  const std::lock_guard lock(mutex_);
  taken_bytes_ -= room;
  free_.emplace(room, memory);
  free_bytes_ += room;
  shrink_to(most_bytes_ > taken_bytes_ ? most_bytes_ - taken_bytes_ : 0);
}

void MemoryPool::shrink_to(std::uint64_t bytes) noexcept {
  while (free_bytes_ > bytes) {
    // The largest first: fewest calls, and small rooms are those that most batches ask for.
    const auto last = std::prev(free_.end());
    munmap(last->second, last->first);
    free_bytes_ -= last->first;
    free_.erase(last);
  }
}

}  // namespace sprat::io
