#include "plugins/torch/native/staging.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/memory.hpp"

namespace sprat::pytorch {
namespace {

at::Tensor staged(const at::Tensor& like, at::IntArrayRef sizes, Operation& operation) {
  at::Tensor copy = empty_shared(sizes, like.scalar_type());
  operation.staging.push_back(copy);
  return copy;
}

/// Of as many elements, one of them contiguous.
void copy_into(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_contiguous() && from.is_contiguous()) {
    if (to.nbytes() > 0) {
      std::memcpy(to.data_ptr(), from.data_ptr(), to.nbytes());
    }
    return;
  }
  // Moving bytes does not concern autograd, as with memcpy() above. An operation that ends on
  // another thread than the caller's may have to write to tensors of inference mode, which autograd
  // would forbid.
  const at::AutoDispatchBelowADInplaceOrView plain;
  // The contiguous one takes the other one's shape, so that copy_() walks both in the same order.
  const at::Tensor flat_from = from.is_contiguous() ? from.view(to.sizes()) : from;
  to.is_contiguous() ? to.view(from.sizes()).copy_(from) : to.copy_(flat_from);
}

/// Of which the first may be null.
std::function<void()> both(std::function<void()> first, std::function<void()> then) {
  if (!first) {
    return then;
  }
  return [first = std::move(first), then = std::move(then)] {
    first();
    then();
  };
}

/// One dimension over adjacent tensors.
at::Tensor spanning(const std::vector<at::Tensor>& tensors) {
  const auto first =
      std::ranges::find_if(tensors, [](const at::Tensor& tensor) { return tensor.numel() > 0; });
  const at::Tensor& begin = first == tensors.end() ? tensors.front() : *first;
  return begin.as_strided({total_count(tensors)}, {1});
}

}  // namespace

void prepare_also(Operation& operation, std::function<void()> then) {
  operation.prepare = both(std::move(operation.prepare), std::move(then));
}

void finish_also(Operation& operation, std::function<void()> then) {
  operation.finish = both(std::move(operation.finish), std::move(then));
}

at::Tensor readable(const at::Tensor& tensor, Operation& operation) {
  if (tensor.is_contiguous()) {
    return tensor;
  }
  at::Tensor copy = staged(tensor, tensor.sizes(), operation);
  prepare_also(operation, [copy, tensor] { copy_into(copy, tensor); });
  return copy;
}

at::Tensor writable(const at::Tensor& tensor, Operation& operation) {
  if (tensor.is_contiguous()) {
    return tensor;
  }
  at::Tensor copy = staged(tensor, tensor.sizes(), operation);
  finish_also(operation, [tensor, copy] { copy_into(tensor, copy); });
  return copy;
}

at::Tensor updatable(const at::Tensor& tensor, Operation& operation) {
  at::Tensor same = writable(tensor, operation);
  if (!same.is_same(tensor)) {
    prepare_also(operation, [same, tensor] { copy_into(same, tensor); });
  }
  return same;
}

at::Tensor joined_readable(const std::vector<at::Tensor>& tensors, Operation& operation) {
  if (are_adjacent(tensors)) {
    return spanning(tensors);
  }
  at::Tensor all = staged(tensors.front(), {total_count(tensors)}, operation);
  prepare_also(operation, [all, tensors] {
    std::int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      copy_into(all.narrow(0, at, tensor.numel()), tensor);
      at += tensor.numel();
    }
  });
  return all;
}

at::Tensor joined_writable(const std::vector<at::Tensor>& tensors, Operation& operation) {
  if (are_adjacent(tensors)) {
    return spanning(tensors);
  }
  at::Tensor all = staged(tensors.front(), {total_count(tensors)}, operation);
  finish_also(operation, [tensors, all] {
    std::int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      copy_into(tensor, all.narrow(0, at, tensor.numel()));
      at += tensor.numel();
    }
  });
  return all;
}

}  // namespace sprat::pytorch
