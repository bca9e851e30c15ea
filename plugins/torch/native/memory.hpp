// Tensors in memory that ranks of a host read in place.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>

namespace sprat::pytorch {

/// An uninitialised contiguous CPU tensor in sprat::Memory. What is freed is kept for the next of
/// about that size. Any thread.
at::Tensor empty_shared(at::IntArrayRef sizes, at::ScalarType dtype);
/// Whether the tensor lies in such memory.
bool is_shared(const at::Tensor& tensor);

/// Bytes of memory that tensors use, and that are kept for the next ones.
struct MemoryUse {
  std::size_t used = 0, kept = 0;
};
MemoryUse memory_use();
/// Gives back what is kept.
void release_kept_memory();

}  // namespace sprat::pytorch
