#include "layers/row_sums.hpp"

#include "comm/base/check.hpp"
#include "comm/base/vector.hpp"

namespace sprat::layers {
namespace {

SPRAT_CLONES void add(std::size_t count, const float* values, float* sums) {
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] += values[i];
  }
}

}  // namespace

std::size_t row_sums_workspace(const RowSums& sums) noexcept {
  return sums.pieces <= 1 ? 0 : static_cast<std::size_t>(sums_at_a_time(sums.pieces)) * sums.count;
}

void check_row_sums(const RowSums& sums, std::span<const float> workspace) {
  require(sums.pieces >= 1, "rows are to be added up in ", sums.pieces,
          " pieces; there is at least one");
  require(workspace.size() >= row_sums_workspace(sums), "a workspace of ", workspace.size(),
          " elements is too small for a gradient of ", sums.count, " in ", sums.pieces,
          " pieces of rows; it takes ", row_sums_workspace(sums));
}

void add_onto(std::span<const float> values, std::span<float> sums) {
  add(values.size(), values.data(), sums.data());
}

}  // namespace sprat::layers
