// Tensors as Sprat's elements.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "sprat/buffer.hpp"

namespace sprat::pytorch {

/// A contiguous tensor's elements to be moved: a type that Sprat has no name for travels as bytes.
Elements moved(const at::Tensor& tensor);
/// To be reduced: complex numbers are pairs of reals. Throws c10::ValueError for a type without
/// arithmetic.
Elements reduced(const at::Tensor& tensor);
/// How many of moved()'s elements `count` elements of the tensor are.
std::size_t moved_count(const at::Tensor& tensor, std::int64_t count);

/// "[4, 3] float32": for messages.
std::string shape_of(const at::Tensor& tensor);
std::string shapes_of(const std::vector<at::Tensor>& tensors);

/// Whether the tensors are contiguous and lie one after the other in one storage. Those without
/// elements may lie anywhere.
bool are_adjacent(const std::vector<at::Tensor>& tensors);
std::int64_t total_count(const std::vector<at::Tensor>& tensors);

}  // namespace sprat::pytorch
