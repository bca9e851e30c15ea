#include "plugins/torch/native/elements.hpp"

#include <optional>
#include <sstream>

namespace sprat::pytorch {
namespace {

std::optional<DType> dtype_of_scalar(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return DType::u8;
    case at::kChar:
      return DType::i8;
    case at::kShort:
      return DType::i16;
    case at::kInt:
      return DType::i32;
    case at::kLong:
      return DType::i64;
    case at::kUInt16:
      return DType::u16;
    case at::kUInt32:
      return DType::u32;
    case at::kUInt64:
      return DType::u64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kFloat8_e4m3fn:
      return DType::f8e4m3;
    case at::kFloat8_e5m2:
      return DType::f8e5m2;
    case at::kBool:
      return DType::boolean;
    default:  // not all are named: PyTorch adds types with every release
      return std::nullopt;
  }
}

std::optional<DType> real_dtype(at::ScalarType type) {
  return at::isComplexType(type) ? dtype_of_scalar(c10::toRealValueType(type))
                                 : dtype_of_scalar(type);
}

std::size_t parts_of(at::ScalarType type) { return at::isComplexType(type) ? 2 : 1; }

/// The address behind a contiguous tensor.
const void* end_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.data_ptr()) + tensor.nbytes();
}

}  // namespace

Elements moved(const at::Tensor& tensor) {
  void* data = tensor.numel() == 0 ? nullptr : tensor.data_ptr();
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (const auto dtype = real_dtype(tensor.scalar_type())) {
    return {data, count * parts_of(tensor.scalar_type()), *dtype};
  }
  // A type that Sprat does not know can be moved all the same, as bytes.
  return {data, count * tensor.element_size(), DType::u8};
}

std::size_t moved_count(const at::Tensor& tensor, std::int64_t count) {
  const std::size_t each =
      real_dtype(tensor.scalar_type()) ? parts_of(tensor.scalar_type()) : tensor.element_size();
  return static_cast<std::size_t>(count) * each;
}

Elements reduced(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(real_dtype(tensor.scalar_type()), "sprat cannot reduce tensors of ",
                    tensor.scalar_type(), "; convert them first, as by .to(torch.float32)");
  return moved(tensor);
}

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes() << ' ' << c10::getDtypeNames(tensor.scalar_type()).first;
  return out.str();
}

std::string shapes_of(const std::vector<at::Tensor>& tensors) {
  constexpr std::size_t most = 8;
  std::string out;
  for (std::size_t i = 0; i < tensors.size() && i < most; ++i) {
    out += (i == 0 ? "" : ", ") + shape_of(tensors[i]);
  }
  return tensors.size() > most ? out + ", and " + std::to_string(tensors.size() - most) + " more"
                               : out;
}

bool are_adjacent(const std::vector<at::Tensor>& tensors) {
  const at::Tensor* before = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) {
      continue;  // it has no address, and may lie anywhere
    }
    if (!tensor.is_contiguous()) {
      return false;
    }
    // Adjacent addresses alone are not enough: one tensor over all of them is possible only within
    // one storage.
    if (before != nullptr && (!tensor.storage().is_alias_of(before->storage()) ||
                              tensor.data_ptr() != end_of(*before))) {
      return false;
    }
    before = &tensor;
  }
  return true;
}

std::int64_t total_count(const std::vector<at::Tensor>& tensors) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) {
    total += tensor.numel();
  }
  return total;
}

}  // namespace sprat::pytorch
