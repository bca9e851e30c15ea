// Blocks of i8: equal steps, 127 of them up to the block's largest magnitude.
//
// Every number is off by at most half a step, which is best where those of a block are alike. -128
// is no code, so that a block and its negative are coded alike.
#include "collectives/kernels/block_format.hpp"
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/block_formats/i8.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/block_format_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

struct Int8Codes {
  /// A step. None is below the smallest normal number, so that each has an inverse.
  static HWY_INLINE float scale(std::uint32_t largest) {
    return std::max(std::bit_cast<float>(largest) / 127.0f, std::numeric_limits<float>::min());
  }
  /// Beside 1.5 * 2^23 a unit in the last place is 1: the sum rounds to the nearest integer, to
  /// even between two, on every instruction set.
  template <class D, class V>
  static HWY_INLINE void store(D d, V lanes, std::uint8_t* to) {
    const hn::RebindToSigned<D> words;
    const hn::Rebind<std::int8_t, D> bytes;
    const auto beside = hn::Set(d, 0x1.8p23f);
    const auto steps =
        hn::Sub(hn::BitCast(words, hn::Add(lanes, beside)), hn::BitCast(words, beside));
    hn::StoreU(hn::DemoteTo(bytes, steps), bytes, reinterpret_cast<std::int8_t*>(to));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    const hn::RebindToSigned<D> words;
    const hn::Rebind<std::int8_t, D> bytes;
    const auto steps = hn::LoadU(bytes, reinterpret_cast<const std::int8_t*>(from));
    return hn::ConvertTo(d, hn::PromoteTo(words, steps));
  }
};

void encode_i8(const float* from, std::size_t count, std::byte* to) {
  encode_blocks<Int8Codes>(from, count, to);
}
void decode_i8(const std::byte* from, std::size_t count, float* to) {
  decode_blocks<Int8Codes>(from, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sprat::collectives {
namespace {

HWY_EXPORT(encode_i8);
HWY_EXPORT(decode_i8);

void encode(const float* from, std::size_t count, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(encode_i8)(from, count, to);
}
void decode(const std::byte* from, std::size_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(decode_i8)(from, count, to);
}

}  // namespace

extern const BlockFormat i8_block_format;
const BlockFormat i8_block_format = {.name = "i8",
                                     .dtype = DType::i8,
                                     .relative = 0,
                                     .absolute = 0.5 / 127 + 0x1p-22,
                                     .encode = encode,
                                     .decode = decode};

}  // namespace sprat::collectives
#endif
