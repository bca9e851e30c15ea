// PyTorch's reduction operations as Sprat's.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "sprat/reduction.hpp"

namespace sprat::pytorch {

/// Throws c10::ValueError for one that Sprat lacks, or has not for this type.
Reduction reduction_of(const c10d::ReduceOp& op, DType dtype);

}  // namespace sprat::pytorch
