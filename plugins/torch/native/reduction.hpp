// PyTorch's reduction operations as Sprat's.
#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "sprat/reduction.hpp"

namespace sprat::pytorch {

/// Of tensors like this one. Throws c10::ValueError for one that Sprat lacks, or has not for this
/// type.
Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor);

}  // namespace sprat::pytorch
