// Which source each sample of a mixture comes from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sprat::io {

struct SourceDraw {
  std::uint32_t source = 0;
  std::uint64_t index = 0;  ///< Of the source's own samples, counted through all its epochs.
};

/// Endless. Each source's samples are drawn once each. Immutable; any thread may ask.
///
/// The shares are the weights over their sum, as rationals whose denominator is near 2^32: each is
/// within sources / 2^32 of what was asked for. After any number of samples, a source has given its
/// share of them but for at most 16 + log2(sources), rounded up.
///
/// Idea: halves of the sources share out samples between them by Bresenham's rule (the left half
/// has floor(n * share) of the first n), each half in turn between its own halves: so counts and
/// ranks are closed forms, and exact for ever. That order is regular, and ranks that take every
/// n-th sample would see one source alone; so it is permuted within blocks of 64.
///
/// Cost: O(log sources).
class Mixture {
 public:
  static constexpr std::uint64_t block = 64;

  /// Throws Error{invalid_argument} if a weight is not above 0, or below 2^-32 of all.
  Mixture(std::uint64_t seed, std::span<const double> weights);

  SourceDraw draw(std::uint64_t sample) const;

 private:
  /// Sources [first, first + count), and how many of 2^64 samples its left half gets.
  struct Node {
    std::uint32_t first = 0, count = 0;
    std::uint64_t left_share = 0;
    std::size_t left = 0, right = 0;  // in nodes_; if count > 1
  };
  std::size_t add_node(std::span<const std::uint64_t> weights, std::uint32_t first);

  std::uint64_t seed_;
  std::vector<Node> nodes_;  // the first has all sources
};

}  // namespace sprat::io
