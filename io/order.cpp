// The sample order: a keyed permutation of a counter.
//
// A balanced Feistel network permutes the blocks of the next even number of bits; an element that
// falls outside [0, size) is permuted again until it falls inside ("cycle walking"; Black and
// Rogaway, Ciphers with arbitrary finite domains, 2002), which takes fewer than four rounds on
// average.
#include <bit>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

constexpr int feistel_rounds = 6;

/// A step of SplitMix64; without the step, 0 would stay 0.
std::uint64_t mix(std::uint64_t value) { return mix_bits(value + golden_step); }

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size)
    : key_(mix(mix(seed) + epoch)), size_(size) {
  require(size > 0, "a permutation needs at least one element");
  // Both halves have the same number of bits, so the blocks are at most four times as many as the
  // elements: that bounds the walk.
  half_bits_ = static_cast<int>(std::bit_width(size - 1) + 1) / 2;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  require(index < size_, "index ", index, " is outside a permutation of ", size_);
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

std::uint64_t Permutation::encrypt(std::uint64_t block) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = block >> half_bits_, right = block & mask;
  for (std::uint64_t round = 0; round < feistel_rounds; ++round) {
    const std::uint64_t next = left ^ (mix(key_ ^ mix(right + (round << 32))) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

SampleOrder::SampleOrder(std::uint64_t seed, std::uint64_t tokens, std::uint64_t length)
    : seed_(seed), length_(length) {
  require(length > 0, "a sample needs at least one token");
  require(tokens >= 2 * length, "a text of ", tokens, " tokens is too short for samples of ",
          length, ": give at least ", 2 * length);
  per_epoch_ = tokens / length - 1;  // the shift takes less than one window from the text
}

std::uint64_t SampleOrder::begin(std::uint64_t sample) const {
  const std::uint64_t epoch = sample / per_epoch_;
  // Each epoch cuts the text at other places, so that windows are not the same ones again.
  const std::uint64_t shift = mix(mix(seed_ ^ length_) + epoch) % length_;
  return shift + length_ * Permutation(seed_, epoch, per_epoch_)(sample % per_epoch_);
}

}  // namespace sprat
