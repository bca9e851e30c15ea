// Arrays of f32 aligned for vectors and cache lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace sprat::train {

template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};
  AlignedAllocator() = default;
  template <class Other>
  AlignedAllocator(const AlignedAllocator<Other>&) noexcept {}  // NOLINT: as allocators convert
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), alignment));
  }
  void deallocate(T* memory, std::size_t) noexcept { ::operator delete(memory, alignment); }
  bool operator==(const AlignedAllocator&) const = default;
};

using Floats = std::vector<float, AlignedAllocator<float>>;

}  // namespace sprat::train
