// Block sums of squares and the clipping factor.
#include "fsdp/clip.hpp"

#include <algorithm>
#include <array>

#include "fsdp/plan/layout.hpp"

namespace sprat::fsdp {
namespace {

// As many running sums as fill vector registers; a fixed number, so that the order is fixed.
constexpr std::size_t axis_communicators = 16;

double sum_of_squares(const float* values) {
  std::array<double, axis_communicators> sums{};
  for (std::size_t i = 0; i < block_elements; i += axis_communicators) {
    for (std::size_t axis_communicator = 0; axis_communicator < axis_communicators;
         ++axis_communicator) {
      const double value = static_cast<double>(values[i + axis_communicator]);
      sums[axis_communicator] += value * value;
    }
  }
  for (std::size_t width = axis_communicators / 2; width > 0; width /= 2) {
    for (std::size_t axis_communicator = 0; axis_communicator < width; ++axis_communicator) {
      sums[axis_communicator] += sums[axis_communicator + width];
    }
  }
  return sums[0];
}

}  // namespace

void block_sums_of_squares(std::span<const float> values, std::span<double> sums) {
  for (std::size_t block = 0; block < sums.size(); ++block) {
    sums[block] = sum_of_squares(values.data() + block * block_elements);
  }
}

std::vector<std::size_t> norm_windows(std::span<const std::size_t> blocks, std::size_t most) {
  std::vector<std::size_t> ends;
  std::size_t held = 0;
  for (std::size_t unit = 0; unit < blocks.size(); ++unit) {
    if (unit > 0 && held + blocks[unit] > most) {
      ends.push_back(unit);
      held = 0;
    }
    held += blocks[unit];
  }
  if (!blocks.empty()) {
    ends.push_back(blocks.size());
  }
  return ends;
}

std::vector<double> sums_in_block_order(std::span<const double> gathered,
                                        std::span<const std::size_t> blocks, int shards) {
  const std::size_t per_shard = gathered.size() / static_cast<std::size_t>(shards);
  std::vector<double> sums;
  std::size_t unit_offset = 0;
  for (const std::size_t count : blocks) {
    double sum = 0;
    for (int shard = 0; shard < shards; ++shard) {
      for (const double block :
           gathered.subspan(static_cast<std::size_t>(shard) * per_shard + unit_offset, count)) {
        sum += block;
      }
    }
    sums.push_back(sum);
    unit_offset += count;
  }
  return sums;
}

double clip_factor(double norm, float limit) {
  if (!(limit > 0)) {
    return 1;
  }
  return std::min(1.0,
                  static_cast<double>(limit) / (norm + 1e-6));  // 1e-6 as in torch and Megatron
}

}  // namespace sprat::fsdp
