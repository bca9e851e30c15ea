#include "comm/memory/memory.hpp"

#include <pthread.h>

#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <utility>

#include "sprat/buffer.hpp"

namespace sprat::comm {
namespace {

/// Every live sprat::Memory by address. Process-wide because allocation is, like malloc's arena.
struct MemoryRegistry {
  std::shared_mutex mutex;  ///< Guards segments.
  std::map<const std::byte*, std::unique_ptr<Segment>> segments;
  /// Spares the lock while there are none. Relaxed is enough: who passes memory to a call has made
  /// it before, and so sees it counted.
  std::atomic<std::size_t> count = 0;
};

MemoryRegistry& registry();

/// fork() takes the lock, so that no thread is changing the map at that moment and a child finds it
/// whole. In the child the lock is made anew: the old one may count threads that waited for it in
/// the parent.
MemoryRegistry& make_registry() {
  auto& made = *new MemoryRegistry;  // outlives static destructors of callers
  pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                 [] { new (&registry().mutex) std::shared_mutex; });
  return made;
}

[[gnu::hot]] MemoryRegistry& registry() {
  static MemoryRegistry& instance = make_registry();
  return instance;
}

}  // namespace

[[gnu::hot]] std::optional<MemoryRef> find_memory(const void* data, std::size_t bytes) noexcept {
  MemoryRegistry& all = registry();
  if (all.count.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  const auto* address = static_cast<const std::byte*>(data);
  std::shared_lock lock(all.mutex);
  auto next = all.segments.upper_bound(address);
  if (next == all.segments.begin()) {
    return std::nullopt;
  }
  const Segment& segment = *std::prev(next)->second;
  const auto offset = static_cast<std::size_t>(address - segment.data());
  // Subtracted, since the sum of the caller's number and the offset may wrap.
  if (offset > segment.bytes() || bytes > segment.bytes() - offset || !segment.here()) {
    return std::nullopt;
  }
  return segment.ref(offset);
}

}  // namespace sprat::comm

namespace sprat {

Memory::Memory(std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  auto segment = std::make_unique<comm::Segment>(bytes, comm::Segment::Pages::huge);
  data_ = segment->data();
  bytes_ = bytes;
  auto& all = comm::registry();
  std::unique_lock lock(all.mutex);
  all.segments.emplace(static_cast<const std::byte*>(data_), std::move(segment));
  all.count.fetch_add(1, std::memory_order_relaxed);
}

Memory::~Memory() {
  if (data_ == nullptr) {
    return;
  }
  auto& all = comm::registry();
  std::unique_lock lock(all.mutex);
  auto taken = all.segments.extract(static_cast<const std::byte*>(data_));
  all.count.fetch_sub(1, std::memory_order_relaxed);
  lock.unlock();  // unmapping is slow, and the node owns the segment now
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace sprat
