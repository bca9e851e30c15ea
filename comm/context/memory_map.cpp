#include "comm/context/memory_map.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/context/fences.hpp"
#include "comm/memory/foreign_memory.hpp"
#include "comm/memory/memory.hpp"

namespace sprat::comm {
namespace {

// Sparse: pages are taken as they are touched.
constexpr std::size_t control_bytes = std::size_t{256} << 20;

// Processors fetch lines of 64 bytes in pairs. What begins in the middle of a pair has its first
// and last line in pairs with somebody else's, who writes them at other times: a short input costs
// one transfer more.
constexpr std::size_t line_pair = 128;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + line_pair - 1) / line_pair * line_pair;
}

// Never 0, which is what a segment holds that nobody has written to.
std::uint64_t make_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device() | 1;
}

}  // namespace

MemoryMap::MemoryMap(int rank, int size)
    : control_(std::make_unique<Segment>(control_bytes)),
      used_(aligned(sizeof(ControlHeader))),
      controls_(size),
      neighbours_(size) {
  auto* header = new (control_->data()) ControlHeader;
  header->fences.store(register_fences() ? 1 : 0, std::memory_order_relaxed);
  header->nonce.store(make_nonce(), std::memory_order_release);
  controls_[rank] = control_->data();
}

MemoryMap::Offer MemoryMap::offer() const {
  return {getpid(), control_->ref(), reinterpret_cast<std::uintptr_t>(control_->data()),
          header().nonce.load(std::memory_order_relaxed)};
}

void MemoryMap::meet(int rank, const Offer& offer) {
  neighbours_[rank] = std::make_unique<Neighbour>(offer);
}

void MemoryMap::share_process() {
  in_process_ = true;
  for (std::size_t rank = 0; rank < neighbours_.size(); ++rank) {
    controls_[rank] = reinterpret_cast<std::byte*>(neighbours_[rank]->offer.address);
  }
}

std::optional<std::string> MemoryMap::map(int rank) {
  const Offer& offer = neighbours_[rank]->offer;
  auto mapping = PeerMapping::open(offer.pid, offer.segment, PeerMapping::Access::ring);
  if (!mapping) {
    return std::strerror(errno);
  }
  if (mapping->bytes() < sizeof(ControlHeader) ||
      header_of(mapping->data()).nonce.load(std::memory_order_acquire) != offer.nonce) {
    return "it is another process's";
  }
  controls_[rank] = mapping->data();
  neighbours_[rank]->control = std::move(mapping);
  return std::nullopt;
}

// The nonce is what every rank has at a known place: the header begins with it.
bool MemoryMap::try_reading(int rank) const noexcept {
  static_assert(offsetof(ControlHeader, nonce) == 0);
  const Offer& offer = neighbours_[rank]->offer;
  std::uint64_t seen = 0;
  return read_foreign(offer.pid, offer.address, reinterpret_cast<std::byte*>(&seen), sizeof seen) &&
         seen == offer.nonce;
}

std::size_t MemoryMap::allocate(std::size_t bytes) {
  bytes = aligned(bytes);
  collect_unused();
  const auto found =
      std::ranges::find_if(free_, [bytes](const Free& one) { return one.bytes == bytes; });
  if (found != free_.end()) {
    const std::size_t offset = found->offset;
    *found = free_.back();
    free_.pop_back();
    return offset;
  }
  need(used_ + bytes <= control_->bytes(), "the control segment of ", control_->bytes(),
       " bytes is full; free communicators that are no longer used");
  return std::exchange(used_, used_ + bytes);
}

void MemoryMap::release(std::size_t offset, std::size_t bytes) {
  free_.push_back({aligned(bytes), offset});
}

void MemoryMap::release_when(std::size_t offset, std::size_t bytes,
                             std::function<bool()> is_unused) {
  awaited_.push_back({{aligned(bytes), offset}, std::move(is_unused)});
}

void MemoryMap::collect_unused() {
  std::erase_if(awaited_, [this](const AwaitedPiece& one) {
    const bool unused = one.is_unused();
    if (unused) {
      free_.push_back(one.piece);
    }
    return unused;
  });
}

[[gnu::hot]] MemoryRef MemoryMap::describe(const void* data, std::size_t bytes) const noexcept {
  if (in_process_) {
    return {MemoryRef::Kind::address, -1, 0, 0, reinterpret_cast<std::uintptr_t>(data)};
  }
  if (const auto shared = find_memory(data, bytes)) {
    return *shared;
  }
  return readability_.mine && bytes > 0
             ? MemoryRef{MemoryRef::Kind::process, -1, 0, 0, reinterpret_cast<std::uintptr_t>(data)}
             : MemoryRef{};
}

PeerMemory MemoryMap::view(int rank, const MemoryRef& ref) {
  constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();
  switch (ref.kind) {
    case MemoryRef::Kind::unreachable:
      return {};
    case MemoryRef::Kind::address:  // of another process it would be nonsense
      return in_process_ ? PeerMemory{reinterpret_cast<const std::byte*>(ref.offset), unknown}
                         : PeerMemory{};
    case MemoryRef::Kind::process:
      return {reinterpret_cast<const std::byte*>(ref.offset), unknown};
    case MemoryRef::Kind::segment:
      if (neighbours_[rank] == nullptr) {
        errno = EFAULT;  // as where the kernel says no
        return {};
      }
      return neighbours_[rank]->mappings.view(ref);
  }
  return {};
}

bool MemoryMap::read(int rank, const std::byte* from, std::byte* to,
                     std::size_t bytes) const noexcept {
  return neighbours_[rank] != nullptr &&
         read_foreign(neighbours_[rank]->offer.pid, reinterpret_cast<std::uintptr_t>(from), to,
                      bytes);
}

}  // namespace sprat::comm
