// What lets the compiler use the widest vectors of the processor, with equal bits on every one.
#pragma once

#include <bit>
#include <cstdint>

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

/// e^x to within 2 ulp for |x| < 87; 0 below that range, e^88 above. Branch-free.
/// Cephes' expf (Moshier 1992): x = n ln 2 + r, a polynomial for e^r, n added to the exponent.
SPRAT_INLINE float fast_exp(float x) {
  constexpr float lowest = -87.0f, highest = 88.0f, log2_e = 1.44269504f;
  constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
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
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  const float result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + exponent);
  return vanishes ? 0.0f : result;
}

/// The lanes' sum, in halves.
SPRAT_INLINE float add_lanes(float* lane) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      lane[i] += lane[i + half];
    }
  }
  return lane[0];
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
  return add_lanes(lane);
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
  for (int l = 1; l < lanes; ++l) {
    lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  }
  return lane[0];
}

}  // namespace sprat
