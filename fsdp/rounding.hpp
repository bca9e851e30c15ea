// Whole spans of f32 as bf16 or f16 and back.
#pragma once

#include <cstdint>
#include <span>

#include "sprat/buffer.hpp"

namespace sprat::fsdp {

/// `to` <- `from`, each rounded to nearest even as to_bfloat16() and to_float16() do: what is too
/// large becomes infinity, every NaN the one quiet NaN. `type` is f32, bf16 or f16; `to` holds
/// from.size() elements of it, aligned to their size. `to` may be the memory of `from` itself,
/// which then ends as elements in its first half. Any thread; its rounding mode does not matter.
void narrow(DType type, std::span<const float> from, void* to);

/// Which random numbers a stochastic rounding draws: those of element `first` + i of a unit in a
/// step. So the result does not depend on who rounds which part.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;    ///< Below 2^32.
  std::uint32_t unit = 0;   ///< Its number in the model.
  std::uint64_t first = 0;  ///< Index of from[0] in the whole unit's flat buffer; below 2^64 / 2.
};

/// As narrow(), but to one of the two neighbours at random, so that the mean is the value itself:
/// away from zero with the probability that the distance past the nearer-to-zero one has in units
/// of their distance. Numbers of the narrow type, infinities and NaN stay themselves. f16 draws 21
/// random bits below its normal numbers: a mean is off by at most 2^-45 there.
void narrow_stochastically(DType type, std::span<const float> from, void* to,
                           const RoundingKey& key);

/// `to` <- `from`, which holds to.size() elements of `type`; exact. No overlap.
void widen(DType type, const void* from, std::span<float> to);

}  // namespace sprat::fsdp
