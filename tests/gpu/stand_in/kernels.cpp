// Operators on the stand-in device: the CPU's, as tasks of the current stream.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <chrono>
#include <thread>

#include "tests/gpu/stand_in/allocator.hpp"
#include "tests/gpu/stand_in/streams.hpp"

namespace stand_in {
namespace {

using c10::IValue;
using torch::jit::Stack;

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone();
}

/// The CPU's tensor over the same memory. It does not keep the memory: whoever frees it too early
/// reads poison, as on a device.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!is_ours(tensor)) {
    return tensor;
  }
  return at::from_blob(const_cast<void*>(tensor.unsafeGetTensorImpl()->data()), tensor.sizes(),
                       tensor.strides(), at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor on_meta(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number()
             ? at::empty_strided(tensor.sizes(), tensor.strides(),
                                 tensor.options().device(at::kMeta).pinned_memory(false))
             : tensor;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides, allocator(), keys,
                                           dtype.value_or(at::kFloat));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, allocator(), keys, dtype.value_or(at::kFloat), format);
}

Stream* stream_of(const at::Tensor& tensor) { return current_stream(tensor.device().index()); }

void queue(Stream* stream, const std::string& name, std::function<void()> task) {
  stream->queue(name.c_str(), [task = std::move(task)] {
    const c10::InferenceMode plain;  // autograd is the caller's; tensors of either mode are written
    if (const int least = operator_time(); least > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(least));
    }
    task();
  });
}

/// `self` is read, `to` written. Memory of the host is not pinned, so the host waits where it is
/// read or written, unless the caller says that it need not.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  Stream* stream = stream_of(is_ours(to) ? to : self);
  queue(stream, "copy", [from = on_cpu(self), into = on_cpu(to)]() mutable { into.copy_(from); });
  if (!non_blocking && !(is_ours(self) && is_ours(to))) {
    stream->synchronize();
  }
  return to;
}

at::Scalar local_scalar(const at::Tensor& self) {
  stream_of(self)->synchronize();
  return at::_local_scalar_dense(on_cpu(self));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  auto* tensor = self.unsafeGetTensorImpl();
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * self.element_size() +
                     static_cast<std::size_t>(self.storage_offset()) * self.element_size();
  if (bytes > self.storage().nbytes()) {
    c10::DataPtr memory = allocator()->allocate(bytes);
    allocator()->copy_data(memory.get(), self.storage().data(), self.storage().nbytes());
    const c10::DataPtr before =
        self.storage().unsafeGetStorageImpl()->set_data_ptr(std::move(memory));
    self.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  tensor->set_sizes_contiguous(sizes);
  if (format) {
    tensor->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) {
  return at::native::view(self, sizes);
}
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, self.storage_offset());
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return self;
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}
void record_on(at::Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data(), static_cast<Stream*>(stream.native_handle()));
}

/// Each tensor of a value made another, lists' too.
template <class Change>
IValue changed(const IValue& value, Change change) {
  if (value.isTensor()) {
    return change(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(change(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(change(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}

template <class Change>
Stack changed(const Stack& stack, Change change) {
  Stack out;
  for (const IValue& value : stack) {
    out.push_back(changed(value, change));
  }
  return out;
}

/// An argument that says where to make a tensor means the CPU or nothing instead.
Stack placed(Stack stack, at::Device device) {
  for (IValue& value : stack) {
    if (value.isDevice()) {
      value = device;
    }
  }
  return stack;
}

std::optional<at::Device> device_in(const Stack& stack) {
  std::optional<at::Device> found;
  for (const IValue& value : stack) {
    changed(value, [&](const at::Tensor& tensor) {
      if (is_ours(tensor)) {
        found = tensor.device();
      }
      return tensor;
    });
  }
  return found;
}

/// Which argument a result is, as operators in place and with `out` return theirs; -1: a new one.
int argument_of(const c10::FunctionSchema& schema, std::size_t result) {
  const auto* alias = schema.returns()[result].alias_info();
  for (std::size_t i = 0; alias != nullptr && i < schema.arguments().size(); ++i) {
    const auto* other = schema.arguments()[i].alias_info();
    if (other != nullptr && *other == *alias) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

/// Results as the meta device gives them, made anew on the device; nothing if only the CPU can say
/// what comes out.
std::optional<Stack> expected_results(const c10::OperatorHandle& op, const Stack& arguments,
                                      at::Device device) {
  const c10::FunctionSchema& schema = op.schema();
  Stack results;
  bool any_new = false;
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    const int argument = argument_of(schema, i);
    any_new = any_new || argument < 0;
    results.push_back(argument < 0 ? IValue() : arguments.at(static_cast<std::size_t>(argument)));
  }
  if (!any_new) {
    return results;
  }
  Stack meta = placed(changed(arguments, on_meta), at::kMeta);
  try {
    op.callBoxed(&meta);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (argument_of(schema, i) >= 0) {
      continue;
    }
    if (!meta.at(i).isTensor() && !meta.at(i).isTensorList()) {
      return std::nullopt;
    }
    results[i] = changed(meta.at(i), [&](const at::Tensor& tensor) {
      return tensor.defined() ? at::empty_strided(tensor.sizes(), tensor.strides(),
                                                  tensor.options().device(device))
                              : tensor;
    });
  }
  return results;
}

void copy_results(const Stack& from, const Stack& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].isTensor() && to[i].toTensor().defined()) {
      if (!from.at(i).toTensor().is_same(to[i].toTensor())) {
        to[i].toTensor().copy_(from.at(i).toTensor());
      }
    } else if (to[i].isTensorList()) {
      const auto of = from.at(i).toTensorVector(), into = to[i].toTensorVector();
      for (std::size_t k = 0; k < into.size(); ++k) {
        into[k].copy_(of.at(k));
      }
    }
  }
}

/// What only the CPU can say: the host waits, as it does on any device for such operators.
void call_now(const c10::OperatorHandle& op, Stack* stack, at::Device device) {
  current_stream(device.index())->synchronize();
  at::native::cpu_fallback(op, stack);
}

void call(const c10::OperatorHandle& op, Stack* stack) {
  const std::optional<at::Device> device = device_in(*stack);
  TORCH_CHECK(device, "the stand-in device has no ", op.operator_name());
  const c10::DeviceGuard guard(*device);
  const std::optional<Stack> results = expected_results(op, *stack, *device);
  if (!results) {
    return call_now(op, stack, *device);
  }
  // New results are the CPU's own and copied; the others are views of the device's memory.
  Stack results_here = changed(*results, on_cpu);
  for (std::size_t i = 0; i < results_here.size(); ++i) {
    if (argument_of(op.schema(), i) >= 0) {
      results_here[i] = IValue();
    }
  }
  queue(current_stream(device->index()), op.schema().name(),
        [op, arguments = placed(changed(*stack, on_cpu), at::kCPU),
         results_here = std::move(results_here)]() mutable {
          op.callBoxed(&arguments);
          copy_results(arguments, results_here);
        });
  *stack = *results;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("as_strided", TORCH_FN(as_strided));
  library.impl("view", TORCH_FN(view));
  library.impl("_reshape_alias", TORCH_FN(reshape_alias));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  library.impl("record_stream", TORCH_FN(record_on));
}

}  // namespace stand_in
