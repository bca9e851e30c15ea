// What a format of encoded blocks is, and the table of those there are.
#pragma once

#include <cstddef>
#include <span>

#include "sprat/wire.hpp"

namespace sprat::collectives {

/// A row of the table. The functions expect PlainArithmetic. A block is its scale and its codes,
/// one after the other; codes that the last block has too many are 0.
struct BlockFormat {
  const char* name;  ///< That of its file.
  DType dtype;
  /// A number x of a block whose largest magnitude is m decodes to within the most of
  /// relative * |x|, absolute * m and half the smallest normal number.
  double relative, absolute;
  void (*encode)(const float* from, std::size_t count, std::byte* to);
  void (*decode)(const std::byte* from, std::size_t count, float* to);
};
std::span<const BlockFormat* const> all_block_formats() noexcept;
/// Null if numbers of that type have no block scales.
const BlockFormat* block_format_of(DType wire) noexcept;

}  // namespace sprat::collectives
