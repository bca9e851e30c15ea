// Tensors as spans of the core's codec.
#include "sprat/wire.hpp"

#include <span>
#include <vector>

#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/wire.hpp"

namespace sprat::pytorch {
namespace {

DType dtype_named(const std::string& wire) {
  for (const DType dtype : all_dtypes()) {
    if (has_block_scales(dtype) && wire == name(dtype)) {
      return dtype;
    }
  }
  TORCH_CHECK_VALUE(false, "wire is \"", wire, "\"; it is \"i8\", \"f8e4m3\" or \"f8e5m2\"");
}

void check(const char* what, const at::Tensor& tensor, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      tensor.device().is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == dtype, what,
      " is a tensor of ", tensor.scalar_type(), " on ", tensor.device(),
      tensor.is_contiguous() ? "" : ", not contiguous", "; it is a contiguous one of ", dtype,
      " on the CPU");
}

std::span<float> floats(const char* what, const at::Tensor& tensor) {
  check(what, tensor, at::kFloat);
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

std::span<std::byte> bytes(const char* what, const at::Tensor& tensor) {
  check(what, tensor, at::kByte);
  return {reinterpret_cast<std::byte*>(tensor.mutable_data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

std::int64_t encoded_bytes(std::int64_t count) {
  return static_cast<std::int64_t>(sprat::encoded_bytes(static_cast<std::size_t>(count)));
}

void encode(const std::string& wire, const at::Tensor& values, const at::Tensor& to,
            const std::optional<at::Tensor>& residual) {
  guard([&] {
    if (residual) {
      encode_with_feedback(dtype_named(wire), floats("values", values),
                           floats("residual", *residual), bytes("to", to));
    } else {
      sprat::encode(dtype_named(wire), floats("values", values), bytes("to", to));
    }
  });
}

void decode(const std::string& wire, const at::Tensor& from, const at::Tensor& values) {
  guard([&] { sprat::decode(dtype_named(wire), bytes("from", from), floats("values", values)); });
}

void sum_encoded(const std::string& wire, const at::Tensor& from, const at::Tensor& sum) {
  guard([&] {
    const std::span<std::byte> all = bytes("from", from);
    TORCH_CHECK_VALUE(from.dim() == 2 && from.size(0) > 0, "from has ", from.dim(),
                      " dimensions; it has a row for each contribution");
    const auto row = static_cast<std::size_t>(from.size(1));
    std::vector<std::span<const std::byte>> contributions;
    for (std::size_t at = 0; at < all.size(); at += row) {
      contributions.push_back(all.subspan(at, row));
    }
    sprat::sum_encoded(dtype_named(wire), contributions, floats("sum", sum));
  });
}

}  // namespace sprat::pytorch
