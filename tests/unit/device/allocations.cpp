#include "tests/unit/device/allocations.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local long allocations = 0;

/// Null if there is no memory.
void* try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
  ++allocations;
  const std::size_t whole = (bytes + alignment) / alignment * alignment;  // not 0
  return std::aligned_alloc(alignment, whole);
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* const memory = try_allocate(bytes, alignment);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

// All that are not of arrays: a sanitizer has its own of each, and compares who takes with who
// gives.
void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return try_allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sprat::device {

long allocations_here() noexcept { return allocations; }

}  // namespace sprat::device
