// What ranks contribute, added up as a collective adds it.
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

namespace sprat::layers_test {

/// The canonical tree over contributions of equal length: it splits at the largest power of two
/// below their number.
inline std::vector<float> added_by_tree(std::span<const std::vector<float>> contributions) {
  if (contributions.size() == 1) {
    return contributions[0];
  }
  const std::size_t middle = std::bit_ceil(contributions.size()) / 2;
  std::vector<float> sums = added_by_tree(contributions.first(middle));
  const std::vector<float> right = added_by_tree(contributions.subspan(middle));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] += right[i];
  }
  return sums;
}

}  // namespace sprat::layers_test
