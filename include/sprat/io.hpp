// Text as tokens, and the order in which samples of it are visited.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sprat/export.hpp"

namespace sprat {

/// The bytes of text files, one after another. A file may be compressed by gzip.
/// Throws Error{unavailable} naming the file that cannot be read.
SPRAT_API std::vector<std::uint8_t> read_text(const std::vector<std::string>& paths);

/// A keyed permutation of [0, size): every index once an epoch, in an order that depends on seed
/// and epoch alone. Pure and O(1) an index, so a cursor is just a counter and any rank can ask for
/// any.
class SPRAT_API Permutation {
 public:
  /// size > 0.
  Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size);
  /// The element at `index` < size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t block) const;
  std::uint64_t key_, size_;
  int half_bits_ = 1;
};

/// Windows of `length` consecutive tokens, without overlap, that together cover a text; where the
/// first begins differs by epoch. Sample i of the whole training run belongs to epoch
/// i / per_epoch(), whatever the number of ranks.
class SPRAT_API SampleOrder {
 public:
  /// Throws Error{invalid_argument} if the text has fewer than 2 * length tokens.
  SampleOrder(std::uint64_t seed, std::uint64_t tokens, std::uint64_t length);
  std::uint64_t per_epoch() const noexcept { return per_epoch_; }
  /// Where the window of a global sample begins; at most tokens - length.
  std::uint64_t begin(std::uint64_t sample) const;

 private:
  std::uint64_t seed_, length_, per_epoch_;
};

}  // namespace sprat
