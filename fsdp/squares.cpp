// Squares cut into levels. The square of an f32 has at most 48 bits, so f64 holds it. Added to 1.5
// * 2^(52 + k) it is rounded to a multiple of 2^k, which then stands in the low bits of the sum
// (Knuth, TAOCP 4.2.2; "error-free extraction" in Rump, Ogita and Oishi 2008): as an integer it is
// added up without rounding. What was rounded off is exact too, and is the next level's.
#include "fsdp/squares.hpp"

#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fsdp/squares.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>

HWY_BEFORE_NAMESPACE();
namespace sprat::fsdp {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, 8>;
using Words = hn::RebindToUnsigned<Doubles>;

Magnitudes find_magnitudes(const float* values, std::size_t count) {
  const hn::CappedTag<float, squares_step> d;
  const hn::RebindToUnsigned<decltype(d)> words;
  const auto without_sign = hn::Set(words, 0x7fffffff), one = hn::Set(words, 1);
  auto largest = hn::Zero(words), smallest = hn::Set(words, 0xffffffff);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto bits = hn::And(hn::BitCast(words, hn::LoadU(d, values + i)), without_sign);
    largest = hn::Max(largest, bits);
    smallest = hn::Min(smallest, hn::Sub(bits, one));  // a zero becomes the largest of all
  }
  HWY_ALIGN std::uint32_t of_lanes[2][squares_step];
  hn::Store(largest, words, of_lanes[0]);
  hn::Store(smallest, words, of_lanes[1]);
  const std::size_t lanes = hn::Lanes(d);
  return {.largest = *std::max_element(of_lanes[0], of_lanes[0] + lanes),
          .smallest = *std::min_element(of_lanes[1], of_lanes[1] + lanes) + 1};
}

HWY_INLINE std::uint64_t sum_of_lanes(hn::Vec<Words> lanes) {
  HWY_ALIGN std::uint64_t of_lanes[8];
  hn::Store(lanes, Words(), of_lanes);
  std::uint64_t sum = 0;
  for (std::size_t lane = 0; lane < hn::Lanes(Words()); ++lane) {
    sum += of_lanes[lane];
  }
  return sum;
}

/// sums[level] <- the sum, modulo 2^64, of the bits of what is rounded with anchors[level]. Two
/// levels do unless numbers differ by more than 2^26. That the product and the sum are one
/// instruction where there is one changes nothing: the product is exact anyway.
void add_two_levels(const float* values, std::size_t count, const double* anchors,
                    std::uint64_t* sums) {
  const Doubles d;
  const Words words;
  const hn::Rebind<float, Doubles> narrow;
  const auto upper = hn::Set(d, anchors[0]), lower = hn::Set(d, anchors[1]);
  auto upper_sum = hn::Zero(words), lower_sum = hn::Zero(words);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto value = hn::PromoteTo(d, hn::LoadU(narrow, values + i));
    const auto rounded = hn::MulAdd(value, value, upper);
    const auto rest = hn::MulSub(value, value, hn::Sub(rounded, upper));
    upper_sum = hn::Add(upper_sum, hn::BitCast(words, rounded));
    lower_sum = hn::Add(lower_sum, hn::BitCast(words, hn::Add(rest, lower)));
  }
  sums[0] = sum_of_lanes(upper_sum);
  sums[1] = sum_of_lanes(lower_sum);
}

void add_levels(const float* values, std::size_t count, const double* anchors, std::size_t levels,
                std::uint64_t* sums) {
  const Doubles d;
  const Words words;
  const hn::Rebind<float, Doubles> narrow;
  // In memory: vectors of some instruction sets have no size that an array could have.
  HWY_ALIGN std::uint64_t of_lanes[most_levels][8] = {};
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto value = hn::PromoteTo(d, hn::LoadU(narrow, values + i));
    auto rest = hn::Mul(value, value);
    for (std::size_t level = 0; level < levels; ++level) {
      const auto anchor = hn::Set(d, anchors[level]);
      const auto rounded = hn::Add(rest, anchor);
      const auto sum = hn::Load(words, of_lanes[level]);
      hn::Store(hn::Add(sum, hn::BitCast(words, rounded)), words, of_lanes[level]);
      rest = hn::Sub(rest, hn::Sub(rounded, anchor));
    }
  }
  for (std::size_t level = 0; level < levels; ++level) {
    sums[level] = sum_of_lanes(hn::Load(words, of_lanes[level]));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::fsdp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace sprat::fsdp {
namespace {

HWY_EXPORT(find_magnitudes);
HWY_EXPORT(add_two_levels);
HWY_EXPORT(add_levels);

/// The bits of 1.5 * 2^(52 + exponent), whose last place is 2^exponent. The half lets multiples of
/// either sign be added without a change of the last place.
std::uint64_t anchor_bits(int exponent) {
  constexpr int bias = 1023, fraction_bits = 52;
  return static_cast<std::uint64_t>(exponent + fraction_bits + bias) << fraction_bits |
         std::uint64_t{1} << (fraction_bits - 1);
}

}  // namespace

Magnitudes magnitudes(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(find_magnitudes)(values.data(), values.size());
}

void sum_squares(std::span<const float> values, std::span<const int> exponents,
                 std::span<std::int64_t> sums) {
  // What has one level has a second whose unit is smaller than it need be.
  const std::size_t levels = std::max(exponents.size(), std::size_t{2});
  std::array<double, most_levels> anchors;
  std::array<std::uint64_t, most_levels> bits;
  for (std::size_t level = 0; level < levels; ++level) {
    const bool given = level < exponents.size();
    anchors[level] =
        std::bit_cast<double>(anchor_bits(given ? exponents[level] : exponents[0] - level_bits));
  }
  if (levels == 2) {
    HWY_DYNAMIC_DISPATCH(add_two_levels)
    (values.data(), values.size(), anchors.data(), bits.data());
  } else {
    HWY_DYNAMIC_DISPATCH(add_levels)
    (values.data(), values.size(), anchors.data(), levels, bits.data());
  }
  for (std::size_t level = 0; level < exponents.size(); ++level) {
    // Each number has added the anchor once; what is left is below 2^63 and may be negative.
    sums[level] =
        static_cast<std::int64_t>(bits[level] - values.size() * anchor_bits(exponents[level]));
  }
}

}  // namespace sprat::fsdp
#endif
