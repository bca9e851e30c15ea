// Arrays that begin at a multiple of a cache line, a vector or a page.
#pragma once

#include <cstddef>
#include <new>
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

}  // namespace sprat
