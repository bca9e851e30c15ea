// Contiguous stand-ins for tensors that are not, and for lists of tensors.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "plugins/torch/native/work.hpp"

namespace sprat::pytorch {

// Copies are kept in operation.staging; what goes out is brought into them by operation.prepare,
// and what has come into one is put where it belongs by operation.finish. So nothing is read here.

/// The tensor, or a contiguous copy.
at::Tensor readable(const at::Tensor& tensor, Operation& operation);
/// The tensor, or a contiguous one whose content becomes the tensor's when the operation is done.
at::Tensor writable(const at::Tensor& tensor, Operation& operation);
/// The same, of a tensor that is read too.
at::Tensor updatable(const at::Tensor& tensor, Operation& operation);
/// All elements of the tensors, one tensor after the other, as one dimension.
at::Tensor joined_readable(const std::vector<at::Tensor>& tensors, Operation& operation);
at::Tensor joined_writable(const std::vector<at::Tensor>& tensors, Operation& operation);

/// `operation.prepare` and `operation.finish` do `then` too, after what they do already.
void prepare_also(Operation& operation, std::function<void()> then);
void finish_also(Operation& operation, std::function<void()> then);

}  // namespace sprat::pytorch
