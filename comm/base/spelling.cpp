#include "comm/base/spelling.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace sprat {

std::size_t edit_distance(std::string_view one, std::string_view other) {
  // Only one row of the table is kept: distances from the first letters of `one`.
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t replaced = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace sprat
