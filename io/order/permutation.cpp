// A keyed permutation of a counter.
//
// A balanced Feistel network permutes the blocks of the next even number of bits; an element that
// falls outside [0, size) is permuted again until it falls inside ("cycle walking"; Black and
// Rogaway, Ciphers with arbitrary finite domains, 2002), which takes fewer than four rounds on
// average.
#include <bit>

#include "comm/base/check.hpp"
#include "io/order/order_key.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

constexpr int feistel_rounds = 6;

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size)
    : key_(io::order_key(io::order_key(seed) + epoch)), size_(size) {
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
    const std::uint64_t next =
        left ^ (io::order_key(key_ ^ io::order_key(right + (round << 32))) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace sprat
