// Blocks of codes for Python: tensors of f32 on a narrow wire.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>

namespace sprat::pytorch {

/// Bytes of so many numbers as blocks.
std::int64_t encoded_bytes(std::int64_t count);
/// to, of bytes <- values, which are f32; with a residual by error feedback. All contiguous, on the
/// CPU. `wire` is "i8", "f8e4m3" or "f8e5m2". Throws c10::ValueError of anything else.
void encode(const std::string& wire, const at::Tensor& values, const at::Tensor& to,
            const std::optional<at::Tensor>& residual);
/// values <- from.
void decode(const std::string& wire, const at::Tensor& from, const at::Tensor& values);
/// sum <- the canonical tree's over the rows of `from`, each of which encodes as many numbers.
void sum_encoded(const std::string& wire, const at::Tensor& from, const at::Tensor& sum);

}  // namespace sprat::pytorch
