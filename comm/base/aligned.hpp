// Arrays that begin at a multiple of a cache line, a vector, a page or a block of a disk.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace sprat {

/// An allocator of standard containers.
template <class T, std::size_t alignment>
struct AlignedAllocator {
  using value_type = T;
  template <class Other>
  struct rebind {
    using other = AlignedAllocator<Other, alignment>;
  };
  AlignedAllocator() = default;
  template <class Other>
  AlignedAllocator(const AlignedAllocator<Other, alignment>&) noexcept {}  // NOLINT: they convert

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{alignment}));
  }
  void deallocate(T* memory, std::size_t) noexcept {
    ::operator delete(memory, std::align_val_t{alignment});
  }
  bool operator==(const AlignedAllocator&) const = default;
};

/// For vectors and cache lines.
template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T, 64>>;
template <class T>
using PageAlignedVector = std::vector<T, AlignedAllocator<T, 4096>>;

struct FreeAligned {
  std::align_val_t alignment{};
  void operator()(void* memory) const noexcept { ::operator delete(memory, alignment); }
};
template <class T>
using AlignedMemory = std::unique_ptr<T[], FreeAligned>;
/// Not initialised, unlike a vector; `alignment` is a power of two that only the run knows.
template <class T>
AlignedMemory<T> aligned_memory(std::size_t count, std::size_t alignment) {
  static_assert(std::is_trivially_default_constructible_v<T> &&
                std::is_trivially_destructible_v<T>);
  const std::align_val_t aligned{alignment};
  return AlignedMemory<T>(static_cast<T*>(::operator new(count * sizeof(T), aligned)),
                          FreeAligned{aligned});
}

}  // namespace sprat
