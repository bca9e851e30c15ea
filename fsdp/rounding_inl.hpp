// Rounding of vectors of f32, to nearest or at random. Compiled once per instruction set.
#if defined(SPRAT_FSDP_ROUNDING_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SPRAT_FSDP_ROUNDING_INL_HPP
#undef SPRAT_FSDP_ROUNDING_INL_HPP
#else
#define SPRAT_FSDP_ROUNDING_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/kernels/reduce_lanes_inl.hpp"
#include "fsdp/rounding.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::fsdp {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace formats = sprat::collectives::HWY_NAMESPACE;

/// Reads elements before it writes them, and never writes past what it has read: `to` may be
/// `from`.
template <class Format>
void narrow_to(const float* from, std::uint16_t* to, std::size_t count) {
  const hn::ScalableTag<float> all;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(all);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    formats::store_complete<Format>(all, hn::LoadU(all, from + i), to + i, false);
  }
  for (; i < count; ++i) {
    formats::store_complete<Format>(one, hn::LoadU(one, from + i), to + i, false);
  }
}

template <class Format>
void widen_from(const std::uint16_t* from, float* to, std::size_t count) {
  const hn::ScalableTag<float> all;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(all);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Format::load(all, from + i), all, to + i);
  }
  for (; i < count; ++i) {
    hn::StoreU(Format::load(one, from + i), one, to + i);
  }
}

/// The halves of products of 32-bit words.
template <class V>
struct Product {
  V high, low;
};
template <class D, class V = hn::Vec<D>>
HWY_INLINE Product<V> multiply(D d, V a, V b) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    const std::uint64_t product = std::uint64_t{hn::GetLane(a)} * hn::GetLane(b);
    return {.high = hn::Set(d, static_cast<std::uint32_t>(product >> 32)),
            .low = hn::Set(d, static_cast<std::uint32_t>(product))};
  } else {
    const hn::Repartition<std::uint64_t, D> wide;
    const auto even = hn::MulEven(a, b);
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
    return {.high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
            .low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
  }
}

/// Random words of 64 consecutive elements at a time: word j of block b is element 16 j + b's.
struct Words {
  static constexpr std::size_t blocks = 16, count = 4 * blocks;
  alignas(64) std::uint32_t of[count];

  /// Those of elements [count * group, count * (group + 1)).
  HWY_INLINE void draw(const RoundingKey& key, std::uint64_t group) {
    const hn::CappedTag<std::uint32_t, blocks> d;
    const auto word = [d](std::uint64_t value) {
      return hn::Set(d, static_cast<std::uint32_t>(value));
    };
    const std::uint64_t first = blocks * group;  // a multiple of 16: adding b < 16 carries nothing
    for (std::size_t b = 0; b < blocks; b += hn::Lanes(d)) {
      auto c0 = hn::Iota(d, static_cast<std::uint32_t>(first + b));
      auto c1 = word(first >> 32);
      auto c2 = word(static_cast<std::uint64_t>(key.step));
      auto c3 = word(key.unit);
      auto key0 = word(key.seed), key1 = word(key.seed >> 32);
      for (int round = 0; round < 10; ++round) {
        const auto p0 = multiply(d, c0, word(0xD2511F53));
        const auto p1 = multiply(d, c2, word(0xCD9E8D57));
        c0 = hn::Xor(hn::Xor(p1.high, c1), key0);
        c1 = p1.low;
        c2 = hn::Xor(hn::Xor(p0.high, c3), key1);
        c3 = p0.low;
        key0 = hn::Add(key0, word(0x9E3779B9));
        key1 = hn::Add(key1, word(0xBB67AE85));
      }
      hn::StoreU(c0, d, of + b);
      hn::StoreU(c1, d, of + blocks + b);
      hn::StoreU(c2, d, of + 2 * blocks + b);
      hn::StoreU(c3, d, of + 3 * blocks + b);
    }
  }
};

/// The upper 16 bits, after random bits have been added to the lower ones.
struct RandomBrain16 {
  template <class D, class W>
  static HWY_INLINE void store(D, hn::Vec<D> lanes, W words, std::uint16_t* to) {
    const hn::RebindToUnsigned<D> u;
    const hn::RebindToSigned<D> s;
    const auto bits = hn::BitCast(u, lanes);
    const auto drawn = hn::Add(bits, hn::ShiftRight<16>(words));
    const auto number = hn::IfThenElse(hn::RebindMask(u, hn::IsFinite(lanes)), drawn, bits);
    const auto upper = hn::BitCast(s, hn::ShiftRight<16>(number));  // below 2^16
    const auto is_nan = hn::RebindMask(s, hn::IsNaN(lanes));
    const hn::Rebind<std::uint16_t, D> halves;
    hn::StoreU(hn::DemoteTo(halves, hn::IfThenElse(is_nan, hn::Set(s, 0x7fc0), upper)), halves, to);
  }
};

/// A count of f16's units at that size, after random bits have been added to the fraction.
struct RandomBinary16 {
  template <class D, class W>
  static HWY_INLINE void store(D d, hn::Vec<D> lanes, W words, std::uint16_t* to) {
    const hn::RebindToUnsigned<D> u;
    const hn::RebindToSigned<D> s;
    const auto bits = hn::BitCast(s, lanes);
    const auto magnitude = hn::And(bits, hn::Set(s, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(s, 0x8000));
    const auto rebased = hn::Sub(magnitude, hn::Set(s, (127 - 15) << 23));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(rebased, hn::BitCast(s, hn::ShiftRight<32 - 13>(words))));
    // Below 2^-14 a unit is 2^-24: 21 bits of fraction fill a word. Other lanes are 0 here, for
    // which the conversion is defined.
    const auto is_small = hn::Lt(magnitude, hn::Set(s, (127 - 14) << 23));
    const auto small = hn::BitCast(d, hn::IfThenElseZero(is_small, magnitude));
    const auto fixed = hn::ConvertTo(s, hn::Mul(small, hn::Set(d, 0x1p45f)));
    const auto denormal =
        hn::ShiftRight<21>(hn::Add(hn::BitCast(u, fixed), hn::ShiftRight<32 - 21>(words)));
    const auto number = hn::Min(hn::IfThenElse(is_small, hn::BitCast(s, denormal), normal),
                                hn::Set(s, 0x7c00));  // infinity, which is the largest there is
    const auto is_nan = hn::Gt(magnitude, hn::Set(s, 0x7f800000));
    const auto value = hn::IfThenElse(is_nan, hn::Set(s, 0x7e00), hn::Or(sign, number));
    const hn::Rebind<std::uint16_t, D> halves;
    hn::StoreU(hn::DemoteTo(halves, value), halves, to);
  }
};

template <class Format>
void draw_to(const float* from, std::uint16_t* to, std::size_t count, const RoundingKey& key) {
  const hn::CappedTag<float, Words::blocks> all;
  const hn::CappedTag<float, 1> one;
  const hn::RebindToUnsigned<decltype(all)> all_words;
  const hn::RebindToUnsigned<decltype(one)> one_word;
  const std::size_t lanes = hn::Lanes(all);
  Words words;
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t index = key.first + done;
    const std::size_t begin = index % Words::count;
    const std::size_t end = begin + std::min(Words::count - begin, count - done);
    words.draw(key, index / Words::count);
    std::size_t i = begin;
    for (; i + lanes <= end; i += lanes, done += lanes) {
      Format::store(all, hn::LoadU(all, from + done), hn::LoadU(all_words, words.of + i),
                    to + done);
    }
    for (; i < end; ++i, ++done) {
      Format::store(one, hn::LoadU(one, from + done), hn::LoadU(one_word, words.of + i), to + done);
    }
  }
}

void narrow_bf16(const float* from, std::uint16_t* to, std::size_t count) {
  narrow_to<formats::Brain16>(from, to, count);
}
void narrow_f16(const float* from, std::uint16_t* to, std::size_t count) {
  narrow_to<formats::Binary16>(from, to, count);
}
void draw_bf16(const float* from, std::uint16_t* to, std::size_t count, const RoundingKey& key) {
  draw_to<RandomBrain16>(from, to, count, key);
}
void draw_f16(const float* from, std::uint16_t* to, std::size_t count, const RoundingKey& key) {
  draw_to<RandomBinary16>(from, to, count, key);
}
void widen_bf16(const std::uint16_t* from, float* to, std::size_t count) {
  widen_from<formats::Brain16>(from, to, count);
}
void widen_f16(const std::uint16_t* from, float* to, std::size_t count) {
  widen_from<formats::Binary16>(from, to, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::fsdp
HWY_AFTER_NAMESPACE();

#endif
