// What one vector of elements is: how each format is read and written, and what each op does.
// Compiled once per instruction set; every set gives the same bits.
#if defined(SPRAT_COLLECTIVES_REDUCE_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SPRAT_COLLECTIVES_REDUCE_LANES_INL_HPP
#undef SPRAT_COLLECTIVES_REDUCE_LANES_INL_HPP
#else
#define SPRAT_COLLECTIVES_REDUCE_LANES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The processor's own conversions between binary16 and f32 round to nearest even and keep
// denormals in every mode (Intel SDM, VCVTPS2PH with an immediate rounding mode).
#undef SPRAT_CONVERTS_BINARY16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define SPRAT_CONVERTS_BINARY16 1
#else
#define SPRAT_CONVERTS_BINARY16 0
#endif

/// To memory, or past the caches; then `to` is aligned to the vector.
template <class D, class V, class T>
HWY_INLINE void put(D d, V vector, T* to, bool past_cache) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) >= 16) {
    if (past_cache) {
      return hn::Stream(vector, d, to);
    }
  }
  hn::StoreU(vector, d, to);
}

// Formats: elements in memory, lanes in registers.

template <class T>
struct Native {
  using Element = T;
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
    return hn::LoadU(d, from);
  }
  template <class D, class V>
  static HWY_INLINE void store(D d, V lanes, Element* to, bool past_cache) {
    put(d, lanes, to, past_cache);
  }
};

struct Brain16 {
  using Element = std::uint16_t;
  using Lane = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> halves;
    const hn::RebindToUnsigned<D> words;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, from))));
  }
  /// No lane is a NaN but 0x7fc00000, which rounds to 0x7fc0 like a number.
  template <class D, class V>
  static HWY_INLINE void store(D, V lanes, Element* to, bool past_cache) {
    const hn::RebindToUnsigned<D> words;
    const auto bits = hn::BitCast(words, lanes);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu)));
    const hn::RebindToSigned<D> signed_words;  // Below 2^16, so no lane saturates.
    const hn::Rebind<std::uint16_t, D> halves;
    put(halves, hn::DemoteTo(halves, hn::BitCast(signed_words, hn::ShiftRight<16>(rounded))), to,
        past_cache);
  }

  // Two vectors at once, of the elements of even and of odd index: no lane moves.

  /// A 32-bit word holds an even element below an odd one.
  template <class D>
  static HWY_INLINE auto load_words(D, const Element* from) {
    const hn::RebindToUnsigned<D> words;
    const hn::Repartition<std::uint16_t, D> halves;
    return hn::BitCast(words, hn::LoadU(halves, from));
  }
  struct Even {
    using Element = std::uint16_t;
    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
      return hn::BitCast(d, hn::ShiftLeft<16>(load_words(d, from)));
    }
  };
  struct Odd {
    using Element = std::uint16_t;
    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
      const hn::RebindToUnsigned<D> words;
      return hn::BitCast(d, hn::And(load_words(d, from), hn::Set(words, 0xffff0000u)));
    }
  };
  /// As store(). The upper halves go up by one where the lower ones, and 1 for an odd upper one,
  /// are above a half: to nearest, and to even between two.
  template <class D, class V>
  static HWY_INLINE void store_pair(D, V even, V odd, Element* to, bool past_cache) {
    const hn::RebindToUnsigned<D> words;
    const hn::Repartition<std::uint16_t, D> halves;
    const auto e = hn::BitCast(words, even), o = hn::BitCast(words, odd);
    const auto upper =
        hn::OddEven(hn::BitCast(halves, o), hn::BitCast(halves, hn::ShiftRight<16>(e)));
    const auto lower =
        hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(o)), hn::BitCast(halves, e));
    const auto one = hn::Set(halves, std::uint16_t{1});
    const auto beyond = hn::SaturatedAdd(lower, hn::And(upper, one));
    const auto up = hn::Gt(beyond, hn::Set(halves, std::uint16_t{0x8000}));
    put(halves, hn::Add(upper, hn::IfThenElseZero(up, one)), to, past_cache);
  }
};

/// A sign, an exponent, a fraction. The largest exponent is infinity and NaN or, without
/// infinities, numbers like others but for the last pattern, which is NaN.
template <class T, int exponent_bits, bool has_infinity>
struct Narrow {
  using Element = T;
  using Lane = float;
  static constexpr int bits = 8 * sizeof(T);
  static constexpr int fraction_bits = bits - 1 - exponent_bits;
  static constexpr int shift = 23 - fraction_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int sign_bit = 1 << (bits - 1);
  static constexpr int last = sign_bit - 1;
  static constexpr int infinity = last >> fraction_bits << fraction_bits;
  static constexpr int quiet_nan = has_infinity ? infinity | 1 << (fraction_bits - 1) : last;
  /// The first pattern past the numbers, and the f32 from which on everything is.
  static constexpr int overflow = has_infinity ? infinity : last;
  static constexpr int overflow_f32 = (overflow << shift) + ((127 - bias) << 23);

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
    const hn::Rebind<T, D> narrow;
    const hn::RebindToSigned<D> words;
    const auto pattern = hn::PromoteTo(words, hn::LoadU(narrow, from));
    const auto magnitude = hn::And(pattern, hn::Set(words, last));
    const auto sign = hn::ShiftLeft<32 - bits>(hn::Xor(pattern, magnitude));
    const auto fraction = hn::ShiftLeft<shift>(magnitude);
    const auto normal = hn::Add(fraction, hn::Set(words, (127 - bias) << 23));
    // The largest exponent becomes f32's.
    const auto special = has_infinity ? hn::Add(fraction, hn::Set(words, (127 - bias) << 24))
                                      : hn::Set(words, 0x7fc00000);
    // A denormal is its fraction behind the leading one of the smallest normal, less that one.
    const auto one = hn::Set(words, (128 - bias) << 23);
    const auto denormal =
        hn::BitCast(words, hn::Sub(hn::BitCast(d, hn::Add(fraction, one)), hn::BitCast(d, one)));
    const auto finite =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 1 << fraction_bits)), denormal, normal);
    const auto value =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, overflow - 1)), special, finite);
    return hn::BitCast(d, hn::Or(sign, value));
  }

  template <class D, class V>
  static HWY_INLINE void store(D d, V lanes, Element* to, bool past_cache) {
    const hn::RebindToSigned<D> words;
    const auto wide = hn::BitCast(words, lanes);
    const auto magnitude = hn::And(wide, hn::Set(words, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<32 - bits>(wide), hn::Set(words, sign_bit));
    const auto odd = hn::And(hn::ShiftRight<shift>(magnitude), hn::Set(words, 1));
    const auto offset = hn::Set(words, ((127 - bias) << 23) - ((1 << (shift - 1)) - 1));
    const auto normal = hn::ShiftRight<shift>(hn::Add(hn::Sub(magnitude, offset), odd));
    // Beside this power of two a unit in the last place is the smallest denormal: the sum rounds
    // there.
    const auto beside = hn::Set(words, (127 + 24 - bias - fraction_bits) << 23);
    const auto denormal = hn::Sub(
        hn::BitCast(words, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, beside))), beside);
    const auto special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7f800000)),
                                        hn::Set(words, quiet_nan), hn::Set(words, overflow));
    const auto finite =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, (128 - bias) << 23)), denormal, normal);
    const auto rounded =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, overflow_f32 - 1)), special, finite);
    auto value = hn::Or(sign, rounded);
    if constexpr (!has_infinity) {  // What overflows is the one NaN, whatever its sign.
      const auto nan = hn::Set(words, quiet_nan);
      value = hn::IfThenElse(hn::Eq(rounded, nan), nan, value);
    }
    const hn::Rebind<T, D> narrow;
    put(narrow, hn::DemoteTo(narrow, value), to, past_cache);
  }
};

using Float8E4M3 = Narrow<std::uint8_t, 4, false>;
using Float8E5M2 = Narrow<std::uint8_t, 5, true>;

#if SPRAT_CONVERTS_BINARY16
struct Binary16 {
  using Element = std::uint16_t;
  using Lane = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> halves;
    const hn::Rebind<hwy::float16_t, D> binary16;
    return hn::PromoteTo(d, hn::BitCast(binary16, hn::LoadU(halves, from)));
  }
  /// No lane is a NaN but 0x7fc00000.
  template <class D, class V>
  static HWY_INLINE void store(D, V lanes, Element* to, bool past_cache) {
    const hn::Rebind<std::uint16_t, D> halves;
    const hn::Rebind<hwy::float16_t, D> binary16;
    put(halves, hn::BitCast(halves, hn::DemoteTo(binary16, lanes)), to, past_cache);
  }
};
#else
using Binary16 = Narrow<std::uint16_t, 5, true>;
#endif

// Sinks: what becomes of a result on its way to memory.

/// Stored as it is: a partial, or an integer.
template <class T>
struct Exact {
  using Element = T;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    hn::StoreU(lanes, d, to);
  }
};

/// A contribution on its way into the tree.
template <class T>
struct Multiplied {
  using Element = T;
  T factor;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    hn::StoreU(hn::Mul(lanes, hn::Set(d, factor)), d, to);
  }
};

/// Truth, of unsigned lanes: 1 if any bit is set.
template <class T>
struct Truth {
  using Element = T;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    hn::StoreU(hn::Min(lanes, hn::Set(d, T{1})), d, to);
  }
};

/// Every NaN becomes the one quiet NaN; then one rounding to Format.
template <class Format, class D, class V>
HWY_INLINE void store_complete(D d, V lanes, typename Format::Element* to, bool past_cache) {
  using Lane = typename Format::Lane;
  const auto nan = hn::Set(d, std::numeric_limits<Lane>::quiet_NaN());
  Format::store(d, hn::IfThenElse(hn::IsNaN(lanes), nan, lanes), to, past_cache);
}

/// Complete, times `scale`.
template <class Format>
struct Scaled {
  using Element = typename Format::Element;
  typename Format::Lane scale;
  bool past_cache = false;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    store_complete<Format>(d, hn::Mul(lanes, hn::Set(d, scale)), to, past_cache);
  }
  /// Of a Format that stores pairs.
  template <class D, class V>
  HWY_INLINE void store_pair(D d, V even, V odd, Element* to) const {
    const auto factor = hn::Set(d, scale);
    even = hn::Mul(even, factor);
    odd = hn::Mul(odd, factor);
    // A NaN in either is one in the sum, which is cheaper to look at; so is a difference of
    // infinities, for which nothing changes here.
    if (!hn::AllFalse(d, hn::IsNaN(hn::Add(even, odd)))) [[unlikely]] {
      const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
      even = hn::IfThenElse(hn::IsNaN(even), nan, even);
      odd = hn::IfThenElse(hn::IsNaN(odd), nan, odd);
    }
    Format::store_pair(d, even, odd, to, past_cache);
  }
};

/// Complete, divided by any number.
template <class Format>
struct Divided {
  using Element = typename Format::Element;
  typename Format::Lane divisor;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    store_complete<Format>(d, hn::Div(lanes, hn::Set(d, divisor)), to, false);
  }
};

// Operations on lanes. Integers are unsigned for sum and prod, which wrap.

struct Sum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

struct Prod {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    using T = hn::TFromD<D>;
    if constexpr (std::is_floating_point_v<T> || sizeof(T) == 2 || sizeof(T) == 4) {
      return hn::Mul(a, b);
    } else if constexpr (hn::MaxLanes(D()) == 1) {
      return hn::Set(d, static_cast<T>(hn::GetLane(a) * hn::GetLane(b)));
    } else if constexpr (sizeof(T) == 8) {
      return hn::Mul(a, b);
    } else {
      const hn::Repartition<std::uint16_t, D> pairs;
      const auto low = hn::Mul(hn::BitCast(pairs, a), hn::BitCast(pairs, b));
      const auto high = hn::Mul(hn::ShiftRight<8>(hn::BitCast(pairs, a)),
                                hn::ShiftRight<8>(hn::BitCast(pairs, b)));
      return hn::BitCast(
          d, hn::Or(hn::And(low, hn::Set(pairs, std::uint16_t{0xff})), hn::ShiftLeft<8>(high)));
    }
  }
};

struct BitAnd {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Xor(a, b);
  }
};

/// Of truth: one is true, the other is not.
struct Differ {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    const auto one = hn::Set(d, hn::TFromD<D>{1});
    return hn::Xor(hn::Min(a, one), hn::Min(b, one));
  }
};

/// Floats as IEEE 754-2019 minimum: NaN if either is, and -0 below +0.
struct Min {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      // Equal or unordered lanes choose b here and a there; or-ing zeros keeps a minus, and or-ing
      // anything to a NaN leaves one.
      return hn::Or(hn::IfThenElse(hn::Lt(a, b), a, b), hn::IfThenElse(hn::Lt(b, a), b, a));
    } else {
      return hn::Min(a, b);
    }
  }
};

/// Floats as IEEE 754-2019 maximum.
struct Max {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const auto either =
          hn::Or(hn::IfThenElse(hn::Lt(b, a), a, b), hn::IfThenElse(hn::Lt(a, b), b, a));
      return hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), either);
    } else {
      return hn::Max(a, b);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#endif
