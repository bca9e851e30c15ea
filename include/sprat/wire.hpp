// Numbers of f32 on a narrow wire: one byte each, in blocks that share a scale (block-wise
// quantization), as gradients and parameters travel between hosts.
#pragma once

#include <cstddef>
#include <span>

#include "sprat/buffer.hpp"
#include "sprat/export.hpp"

namespace sprat {

/// A block has so many numbers, or fewer at the end: a scale, then a byte for each.
inline constexpr std::size_t wire_block_elements = 256;
inline constexpr std::size_t wire_scale_bytes = sizeof(float);

/// What `count` encoded numbers take, of any format: whole blocks.
constexpr std::size_t encoded_bytes(std::size_t count) {
  return (count + wire_block_elements - 1) / wire_block_elements *
         (wire_block_elements + wire_scale_bytes);
}

/// Whether numbers on a wire of this dtype are in blocks: i8, f8e4m3 or f8e5m2.
SPRAT_API bool has_block_scales(DType wire) noexcept;

// Bits depend on the values alone: not on the processor, nor on the thread's rounding mode. Below,
// `wire` has block scales, or Error{invalid_argument} is thrown, as it is of sizes that do not fit.
// Memory does not overlap.

/// to <- values; to.size() is encoded_bytes(values.size()). The largest magnitude of a block sets
/// its scale. A block that holds a NaN or an infinity decodes as NaN, every number of it.
SPRAT_API void encode(DType wire, std::span<const float> values, std::span<std::byte> to);
/// Encodes values + residual, and residual <- what that lost, which is 0 in a block that decodes as
/// NaN: error feedback (Karimireddy et al., arXiv:1901.09847).
SPRAT_API void encode_with_feedback(DType wire, std::span<const float> values,
                                    std::span<float> residual, std::span<std::byte> to);
/// values <- from.
SPRAT_API void decode(DType wire, std::span<const std::byte> from, std::span<float> values);
/// sum <- the decoded numbers of all contributions, one or more, added in f32 by the canonical
/// tree (docs/numerics.md).
SPRAT_API void sum_encoded(DType wire, std::span<const std::span<const std::byte>> contributions,
                           std::span<float> sum);

}  // namespace sprat
