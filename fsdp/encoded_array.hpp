// An array whose encoded blocks lie at the end of its own memory, so that what a gather brings as
// blocks is decoded where it lies and takes no room beside it.
#pragma once

#include <cstddef>

#include "sprat/buffer.hpp"

namespace sprat::fsdp {

/// A view of f32, bf16 or f16 elements, as many as whole blocks have. Its blocks and its elements
/// share memory: it holds either.
class EncodedArray {
 public:
  EncodedArray(Elements values, DType wire) : values_(values), wire_(wire) {}

  /// All blocks, and those of elements [first, first + count), which are whole blocks.
  Elements blocks() const { return blocks(0, values_.count); }
  Elements blocks(std::size_t first, std::size_t count) const;
  /// The blocks of as many elements from `first` on <- `from`, of the array's dtype: elsewhere, or
  /// these elements themselves.
  void encode(const ConstElements& from, std::size_t first) const;
  /// All elements <- what their blocks stand for, rounded to the array's dtype.
  void decode() const;

 private:
  Elements values_;
  DType wire_;
};

/// What the elements become on such a wire: encoded and decoded.
void pass_through(DType wire, const Elements& values);

}  // namespace sprat::fsdp
