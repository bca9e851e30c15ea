// Blocks to codes and back, whatever the codes are. Compiled once per instruction set; every set
// gives the same bits.
#if defined(SPRAT_COLLECTIVES_BLOCK_FORMAT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SPRAT_COLLECTIVES_BLOCK_FORMAT_INL_HPP
#undef SPRAT_COLLECTIVES_BLOCK_FORMAT_INL_HPP
#else
#define SPRAT_COLLECTIVES_BLOCK_FORMAT_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "collectives/kernels/reduce_lanes_inl.hpp"
#include "sprat/wire.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::uint32_t infinity_bits = 0x7f800000;

/// The pattern of the largest magnitude. As integers magnitudes are in order, infinity and NaN
/// last, so a maximum of integers loses none of them and does not ask for an order of lanes.
HWY_INLINE std::uint32_t largest_magnitude(const float* block) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> words;
  const auto mask = hn::Set(words, 0x7fffffff);
  auto most = hn::Zero(words);
  for (std::size_t i = 0; i < wire_block_elements; i += hn::Lanes(d)) {
    most = hn::Max(most, hn::And(hn::BitCast(words, hn::LoadU(d, block + i)), mask));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(words, most)));
}

/// Scales that are a power of two, the least one at which the block's largest number is not past
/// 1.75 * 2^exponent: dividing by it is exact, so that codes with an exponent of their own lose
/// nothing by it. No scale is below the smallest normal number, so that each has an inverse.
template <int exponent>
HWY_INLINE float power_of_two_scale(std::uint32_t largest) {
  const std::uint32_t rounded_up = (largest + 0x1fffff) >> 23;
  return std::bit_cast<float>((std::max<std::uint32_t>(rounded_up, exponent + 1) - exponent) << 23);
}

/// Codes that are floats of 8 bits, with 1.75 * 2^exponent the largest one that is used.
template <class Float8, int exponent>
struct FloatCodes {
  static HWY_INLINE float scale(std::uint32_t largest) {
    return power_of_two_scale<exponent>(largest);
  }
  template <class D, class V>
  static HWY_INLINE void store(D d, V lanes, std::uint8_t* to) {
    Float8::store(d, lanes, to, false);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return Float8::load(d, from);
  }
};

template <class Codes>
HWY_INLINE void encode_block(const float* block, std::byte* to) {
  const std::uint32_t largest = largest_magnitude(block);
  // A scale of NaN makes every number of the block NaN, whatever its code: no sum misses it.
  const float scale =
      largest < infinity_bits ? Codes::scale(largest) : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(to, &scale, sizeof scale);
  auto* const codes = reinterpret_cast<std::uint8_t*>(to) + sizeof scale;
  if (largest >= infinity_bits) {
    std::fill_n(codes, wire_block_elements, std::uint8_t{0});
    return;
  }
  const hn::ScalableTag<float> d;
  const auto inverse = hn::Set(d, 1.0f / scale);
  for (std::size_t i = 0; i < wire_block_elements; i += hn::Lanes(d)) {
    Codes::store(d, hn::Mul(hn::LoadU(d, block + i), inverse), codes + i);
  }
}

template <class Codes>
HWY_INLINE void decode_block(const std::byte* from, float* block) {
  float scale;
  std::memcpy(&scale, from, sizeof scale);
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(from) + sizeof scale;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < wire_block_elements; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(Codes::load(d, codes + i), factor), d, block + i);
  }
}

/// The last block may be short: it is filled up with zeros, which change no scale.
template <class Codes>
void encode_blocks(const float* from, std::size_t count, std::byte* to) {
  for (std::size_t done = 0; done < count; done += wire_block_elements) {
    const std::size_t length = std::min(wire_block_elements, count - done);
    if (length == wire_block_elements) {
      encode_block<Codes>(from + done, to);
    } else {
      std::array<float, wire_block_elements> whole{};
      std::copy_n(from + done, length, whole.begin());
      encode_block<Codes>(whole.data(), to);
    }
    to += encoded_bytes(wire_block_elements);
  }
}

template <class Codes>
void decode_blocks(const std::byte* from, std::size_t count, float* to) {
  for (std::size_t done = 0; done < count; done += wire_block_elements) {
    const std::size_t length = std::min(wire_block_elements, count - done);
    if (length == wire_block_elements) {
      decode_block<Codes>(from, to + done);
    } else {
      std::array<float, wire_block_elements> whole;
      decode_block<Codes>(from, whole.data());
      std::copy_n(whole.begin(), length, to + done);
    }
    from += encoded_bytes(wire_block_elements);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#endif
