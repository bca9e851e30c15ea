// What lets the compiler use the widest vectors of the processor, with equal bits on every one.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

// A function marked so is compiled for several instruction sets; the loader picks one. Loops below
// are plain, sums have a fixed number of lanes, and nothing is contracted, so every clone gives the
// same bits. Sanitizers run before the loader's picks can be made.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    defined(__OPTIMIZE__)
#define SPRAT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SPRAT_CLONES
#endif
#define SPRAT_INLINE [[gnu::always_inline]] inline

namespace sprat {

/// Partial sums or maxima that a row is reduced in: element i belongs to lane i % lanes.
inline constexpr int lanes = 16;

/// e^x to within 2 ulp for |x| < 87; 0 below that range, e^88 above, NaN of NaN. Branch-free.
/// Cephes' expf (Moshier 1992): x = n ln 2 + r, a polynomial for e^r, times 2^n.
SPRAT_INLINE float fast_exp(float x) {
  constexpr float lowest = -87.0f, highest = 88.0f, log2_e = 1.44269504f;
  // 1.5 * 2^23: adding it rounds to a whole number. 127 more: its last bits are the exponent of
  // 2^n.
  constexpr float to_integer = 12582912.0f + 127.0f;
  constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const bool vanishes = x < lowest;
  x = vanishes ? lowest : x;
  x = x > highest ? highest : x;
  const float shifted = x * log2_e + to_integer;
  const float n = shifted - to_integer;
  const float r = x - n * ln2_high - n * ln2_low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // A product, exact as a power of two is, and not a sum of exponents: that makes numbers of NaNs.
  const float result = p * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
  return vanishes ? 0.0f : result;
}

// The compiler's own vectors for all lanes, half of them, a quarter: written as loops, halving
// would go through memory, and wait there for what it has just stored.
using AllLanes = float __attribute__((vector_size(16 * sizeof(float))));
using HalfLanes = float __attribute__((vector_size(8 * sizeof(float))));
using QuarterLanes = float __attribute__((vector_size(4 * sizeof(float))));
static_assert(sizeof(AllLanes) == lanes * sizeof(float));

/// join(left, right) makes the left half of the lanes that of both, and so on, until one is left.
template <class Join>
SPRAT_INLINE float halve_lanes(const float* lane, const Join& join) {
  AllLanes all;
  std::memcpy(&all, lane, sizeof all);
  HalfLanes half = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7);
  join(half, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15));
  QuarterLanes four = __builtin_shufflevector(half, half, 0, 1, 2, 3);
  join(four, __builtin_shufflevector(half, half, 4, 5, 6, 7));
  float even = four[0], odd = four[1];
  join(even, float{four[2]});
  join(odd, float{four[3]});
  join(even, odd);
  return even;
}

/// Sum over i < count of term(i), in lanes.
template <class Term>
SPRAT_INLINE float sum(int count, const Term& term) {
  float lane[lanes] = {};
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      lane[l] += term(i + l);
    }
  }
  for (int l = 0; i + l < count; ++l) {
    lane[l] += term(i + l);
  }
  return halve_lanes(lane, [](auto& left, const auto& right) { left += right; });
}

/// Largest of x[0, count), count > 0. A maximum has no order to keep.
SPRAT_INLINE float maximum(int count, const float* x) {
  float lane[lanes];
  for (float& one : lane) {
    one = x[0];
  }
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    }
  }
  for (int l = 0; i + l < count; ++l) {
    lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  }
  return halve_lanes(lane,
                     [](auto& left, const auto& right) { left = right > left ? right : left; });
}

}  // namespace sprat
