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
  static HWY_INLINE void store(D d, V lanes, Element* to) {
    hn::StoreU(lanes, d, to);
  }
};

/// The low halves of 32-bit lanes, which are below 2^16.
template <class D, class V>
HWY_INLINE void store_low_halves(D, V bits, std::uint16_t* to) {
  const hn::Rebind<std::uint16_t, D> halves;
  const hn::RebindToSigned<D> words;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(words, bits)), halves, to);
}

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
  static HWY_INLINE void store(D d, V lanes, Element* to) {
    const hn::RebindToUnsigned<D> words;
    const auto bits = hn::BitCast(words, lanes);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu)));
    store_low_halves(d, hn::ShiftRight<16>(rounded), to);
  }
};

struct Binary16 {
  using Element = std::uint16_t;
  using Lane = float;

#if SPRAT_CONVERTS_BINARY16
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> halves;
    const hn::Rebind<hwy::float16_t, D> binary16;
    return hn::PromoteTo(d, hn::BitCast(binary16, hn::LoadU(halves, from)));
  }
  /// No lane is a NaN but 0x7fc00000.
  template <class D, class V>
  static HWY_INLINE void store(D, V lanes, Element* to) {
    const hn::Rebind<std::uint16_t, D> halves;
    const hn::Rebind<hwy::float16_t, D> binary16;
    hn::StoreU(hn::BitCast(halves, hn::DemoteTo(binary16, lanes)), halves, to);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> halves;
    const hn::RebindToSigned<D> words;
    const auto bits = hn::PromoteTo(words, hn::LoadU(halves, from));
    const auto magnitude = hn::And(bits, hn::Set(words, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto fraction = hn::ShiftLeft<13>(magnitude);
    // The exponent's bias goes from 15 to 127; that of infinity and NaN from 31 to 255.
    const auto normal = hn::Add(fraction, hn::Set(words, (127 - 15) << 23));
    const auto special = hn::Add(fraction, hn::Set(words, (255 - 31) << 23));
    // A denormal is its fraction behind the leading one of 2^-14, less that one.
    const auto one = hn::Set(words, (127 - 14) << 23);
    const auto denormal =
        hn::BitCast(words, hn::Sub(hn::BitCast(d, hn::Add(fraction, one)), hn::BitCast(d, one)));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 0x0400)), denormal, normal);
    const auto value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7bff)), special, finite);
    return hn::BitCast(d, hn::Or(sign, value));
  }
  template <class D, class V>
  static HWY_INLINE void store(D d, V lanes, Element* to) {
    const hn::RebindToSigned<D> words;
    const auto bits = hn::BitCast(words, lanes);
    const auto magnitude = hn::And(bits, hn::Set(words, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 0x8000));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 1));
    const auto bias = hn::Set(words, ((127 - 15) << 23) - 0xfff);
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, bias), odd));
    // Beside 0.5 a unit in the last place is 2^-24, the smallest denormal: the sum rounds there.
    const auto half = hn::Set(words, 126 << 23);
    const auto denormal =
        hn::Sub(hn::BitCast(words, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
    const auto special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7f800000)),
                                        hn::Set(words, 0x7e00), hn::Set(words, 0x7c00));
    const auto finite =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, (127 - 14) << 23)), denormal, normal);
    const auto value =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, ((127 + 16) << 23) - 1)), special, finite);
    store_low_halves(d, hn::Or(sign, value), to);
  }
#endif
};

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

/// Every NaN becomes the one quiet NaN; then one rounding to Format.
template <class Format, class D, class V>
HWY_INLINE void store_complete(D d, V lanes, typename Format::Element* to) {
  using Lane = typename Format::Lane;
  const auto nan = hn::Set(d, std::numeric_limits<Lane>::quiet_NaN());
  Format::store(d, hn::IfThenElse(hn::IsNaN(lanes), nan, lanes), to);
}

/// Complete; `scale` is a power of two, so multiplying is dividing, bit for bit.
template <class Format>
struct Scaled {
  using Element = typename Format::Element;
  typename Format::Lane scale;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    store_complete<Format>(d, hn::Mul(lanes, hn::Set(d, scale)), to);
  }
};

/// Complete, divided by any number.
template <class Format>
struct Divided {
  using Element = typename Format::Element;
  typename Format::Lane divisor;
  template <class D, class V>
  HWY_INLINE void store(D d, V lanes, Element* to) const {
    store_complete<Format>(d, hn::Div(lanes, hn::Set(d, divisor)), to);
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
