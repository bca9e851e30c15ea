// Blocks of f8e5m2: floats with two bits of fraction, and a power of two as their scale.
//
// The largest code is 57344, 1.75 * 2^15. Small numbers of a block keep a precision of their own,
// down to the codes' denormals.
#include "collectives/kernels/block_format.hpp"
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/block_formats/f8e5m2.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/block_format_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

using E5M2Codes = FloatCodes<Float8E5M2, 15>;

void encode_f8e5m2(const float* from, std::size_t count, std::byte* to) {
  encode_blocks<E5M2Codes>(from, count, to);
}
void decode_f8e5m2(const std::byte* from, std::size_t count, float* to) {
  decode_blocks<E5M2Codes>(from, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sprat::collectives {
namespace {

HWY_EXPORT(encode_f8e5m2);
HWY_EXPORT(decode_f8e5m2);

void encode(const float* from, std::size_t count, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(encode_f8e5m2)(from, count, to);
}
void decode(const std::byte* from, std::size_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(decode_f8e5m2)(from, count, to);
}

}  // namespace

extern const BlockFormat f8e5m2_block_format;
const BlockFormat f8e5m2_block_format = {.name = "f8e5m2",
                                         .dtype = DType::f8e5m2,
                                         .relative = 0x1p-3,
                                         .absolute = 0x1p-32 / 0.875,
                                         .encode = encode,
                                         .decode = decode};

}  // namespace sprat::collectives
#endif
