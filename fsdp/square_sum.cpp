// Numbers go by groups, each with units of its own: the largest number of a group says where the
// bits of its squares begin, the smallest where they end.
#include "sprat/square_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "collectives/kernels/reduce_environment.hpp"
#include "fsdp/squares.hpp"

namespace sprat {
namespace {

constexpr std::uint32_t infinity_bits = 0x7f800000;
constexpr std::int64_t digit_mask = (std::int64_t{1} << SquareSum::digit_bits) - 1;
constexpr std::size_t infinities = SquareSum::digits, nans = infinities + 1;

static_assert(sizeof(SquareSum) == sizeof(std::int64_t) * (SquareSum::digits + 2));

/// x is a multiple of 2^(exponent_of(x) - 23) and smaller than 2^(exponent_of(x) + 1).
int exponent_of(std::uint32_t magnitude) {
  constexpr int bias = 127, fraction_bits = 23;
  return std::max(static_cast<int>(magnitude >> fraction_bits), 1) - bias;  // 0 is that of 1
}

/// The units of a group's levels, highest first.
struct Levels {
  std::array<int, fsdp::most_levels> exponents;
  std::size_t count = 0;
};
Levels levels_of(const fsdp::Magnitudes& found) {
  Levels levels;
  const int lowest_needed = 2 * (exponent_of(found.smallest) - 23);
  int exponent = 2 * (exponent_of(found.largest) + 1) - fsdp::level_bits;
  levels.exponents[levels.count++] = exponent;
  while (exponent > lowest_needed) {
    exponent = std::max(exponent - fsdp::level_bits, SquareSum::lowest_exponent);
    levels.exponents[levels.count++] = exponent;
  }
  return levels;
}

}  // namespace

void SquareSum::add(std::span<const float> values) {
  const collectives::PlainArithmetic mode;
  carry();  // of words that ranks have added
  while (!values.empty()) {
    const std::span<const float> group = values.first(std::min(values.size(), fsdp::most_squares));
    values = values.subspan(group.size());
    add_group(group);
    carry();
  }
}

void SquareSum::add_group(std::span<const float> values) {
  std::array<float, fsdp::most_squares> copy;
  if (const std::size_t over = values.size() % fsdp::squares_step; over != 0) {
    const std::size_t padded = values.size() - over + fsdp::squares_step;
    std::fill(std::ranges::copy(values, copy.begin()).out, copy.begin() + padded, 0.0f);
    values = std::span(copy).first(padded);
  }
  fsdp::Magnitudes found = fsdp::magnitudes(values);
  if (found.largest >= infinity_bits) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      words_[infinities] += std::isinf(values[i]) ? 1 : 0;
      words_[nans] += std::isnan(values[i]) ? 1 : 0;
      copy[i] = std::isfinite(values[i]) ? values[i] : 0.0f;
    }
    values = std::span(copy).first(values.size());
    found = fsdp::magnitudes(values);
  }
  if (found.largest == 0) {
    return;
  }
  const Levels levels = levels_of(found);
  std::array<std::int64_t, fsdp::most_levels> sums;
  fsdp::sum_squares(values, std::span(levels.exponents).first(levels.count),
                    std::span(sums).first(levels.count));
  for (std::size_t level = 0; level < levels.count; ++level) {
    add_multiple(sums[level], levels.exponents[level]);
  }
}

/// factor * 2^exponent. It lies across three digits: |factor| is below 2^62, which a shift by up to
/// 31 would take out of 64 bits, so its halves are shifted apart.
void SquareSum::add_multiple(std::int64_t factor, int exponent) {
  const int place = exponent - lowest_exponent;
  const int shift = place % digit_bits;
  std::int64_t* const digit = words_.data() + place / digit_bits;
  const std::int64_t low = (factor & digit_mask) << shift;
  const std::int64_t high = (factor >> digit_bits) * (std::int64_t{1} << shift);
  digit[0] += low & digit_mask;
  digit[1] += (low >> digit_bits) + (high & digit_mask);
  digit[2] += high >> digit_bits;
}

/// Makes every digit but the highest one of 0 to 2^32 - 1, as only one way of writing a number
/// does.
void SquareSum::carry() {
  for (std::size_t at = 0; at + 1 < digits; ++at) {
    words_[at + 1] += words_[at] >> digit_bits;
    words_[at] &= digit_mask;
  }
}

SquareSum& SquareSum::operator+=(const SquareSum& other) {
  SquareSum addend = other;
  addend.carry();
  carry();
  for (std::size_t at = 0; at < words_.size(); ++at) {
    words_[at] += addend.words_[at];
  }
  carry();
  return *this;
}

bool SquareSum::operator==(const SquareSum& other) const {
  SquareSum left = *this, right = other;
  left.carry();
  right.carry();
  return left.words_ == right.words_;
}

/// Rounded by hand, in integers: no mode of the thread matters.
double SquareSum::value() const {
  if (words_[nans] > 0 || words_[infinities] > 0) {
    using Limits = std::numeric_limits<double>;
    return words_[nans] > 0 ? Limits::quiet_NaN() : Limits::infinity();
  }
  SquareSum sum = *this;
  sum.carry();
  // The highest digit may take two places here, and three zeros below spare the ends of a number
  // that has few digits a special way.
  constexpr int below = 3;
  std::array<std::uint64_t, below + digits + 1> places{};
  std::ranges::copy_n(sum.words_.begin(), digits, places.begin() + below);
  places[below + digits] = places[below + digits - 1] >> digit_bits;
  places[below + digits - 1] &= digit_mask;
  int top = below + digits;
  while (top >= below && places[top] == 0) {
    --top;
  }
  if (top < below) {
    return 0;
  }
  // 64 bits from the first that is 1 on, and whether any below them is.
  std::uint64_t head = places[top] << digit_bits | places[top - 1];
  const int shift = std::countl_zero(head);
  const std::uint64_t next = places[top - 2] << shift;
  head = head << shift | next >> digit_bits;
  const bool more =
      (next & digit_mask) != 0 || std::any_of(places.begin(), places.begin() + (top - 2),
                                              [](std::uint64_t place) { return place != 0; });
  constexpr int dropped = 64 - std::numeric_limits<double>::digits;
  constexpr std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  std::uint64_t kept = head >> dropped;
  const std::uint64_t rest = head & (2 * half - 1);
  if (rest > half || (rest == half && (more || kept % 2 == 1))) {
    ++kept;
  }
  const int exponent = lowest_exponent + digit_bits * (top - 1 - below) - shift + dropped;
  return std::ldexp(static_cast<double>(kept), exponent);
}

Elements words_of(std::span<SquareSum> sums) {
  return {.data = sums.data(), .count = sums.size() * (SquareSum::digits + 2), .dtype = DType::i64};
}

}  // namespace sprat
