// PyTorch's reduction operations as Sprat's.
#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "sprat/reduction.hpp"

namespace sprat::pytorch {

/// Of tensors like this one. Throws c10::ValueError for one that Sprat lacks, or has not for this
/// type.
Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor);

/// What the operation makes of tensors of one type and shape, in their order: of their average, the
/// average of all ranks is that of all their tensors. Throws c10::Error for what PyTorch lacks.
at::Tensor combined_here(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op);

}  // namespace sprat::pytorch
