// Sums at corners. How often each point is covered is a sum, over the corners of boxes before it in
// every dimension, of 1 or -1: a corner at the ends of an even number of dimensions adds 1. So two
// sets of boxes cover every point alike if and only if these numbers add up to the same at every
// corner. No box is held against another, and so the cost is not quadratic.
#include "checkpoint/plan/cover.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

std::vector<std::size_t> cut_ones(const std::vector<std::int64_t>& shape,
                                  std::span<const Box> boxes) {
  std::vector<std::size_t> cut;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (std::ranges::any_of(boxes, [&](const Box& box) { return box.extent[d] != shape[d]; })) {
      cut.push_back(d);
    }
  }
  return cut;
}

/// Corners one after another, each its indices along the dimensions that are cut.
struct Corners {
  std::vector<std::size_t> dimensions;
  std::vector<std::int64_t> indices;
  std::vector<int> signs;  // by corner

  void add(const Box& box, int sign) {
    for (std::size_t ends = 0; ends < std::size_t{1} << dimensions.size(); ++ends) {
      for (std::size_t at = 0; at < dimensions.size(); ++at) {
        const std::size_t d = dimensions[at];
        indices.push_back(box.offset[d] + ((ends >> at & 1) != 0 ? box.extent[d] : 0));
      }
      signs.push_back(std::popcount(ends) % 2 == 0 ? sign : -sign);
    }
  }
  std::span<const std::int64_t> at(std::size_t corner) const {
    return std::span(indices).subspan(corner * dimensions.size(), dimensions.size());
  }
};

}  // namespace

int cut_dimensions(const std::vector<std::int64_t>& shape, std::span<const Box> boxes) {
  return static_cast<int>(cut_ones(shape, boxes).size());
}

std::optional<CoverFault> cover_fault(const std::vector<std::int64_t>& shape,
                                      std::span<const Box> boxes) {
  if (std::ranges::find(shape, 0) != shape.end()) {
    return std::nullopt;  // there is no element
  }
  Corners corners{.dimensions = cut_ones(shape, boxes), .indices = {}, .signs = {}};
  require(corners.dimensions.size() <= most_cut_dimensions, "a tensor is cut along ",
          corners.dimensions.size(), " dimensions at once; at most ", most_cut_dimensions,
          " may be");
  for (const Box& box : boxes) {
    corners.add(box, 1);
  }
  corners.add(whole_box(shape), -1);
  std::vector<std::size_t> order(corners.signs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::ranges::lexicographical_compare(corners.at(a), corners.at(b));
  });
  for (std::size_t first = 0; first < order.size();) {
    const auto corner = corners.at(order[first]);
    std::int64_t sum = 0;
    for (; first < order.size() && std::ranges::equal(corners.at(order[first]), corner); ++first) {
      sum += corners.signs[order[first]];
    }
    // Every corner that counts for this point comes before it in this order, and adds up to 0: so
    // the point is covered by 1 + sum boxes.
    if (sum != 0) {
      CoverFault fault{.element = std::vector<std::int64_t>(shape.size(), 0), .is_twice = sum > 0};
      for (std::size_t at = 0; at < corner.size(); ++at) {
        fault.element[corners.dimensions[at]] = corner[at];
      }
      return fault;
    }
  }
  return std::nullopt;
}

std::string describe_element(const std::vector<std::int64_t>& element) {
  return fmt::format("[{}]", fmt::join(element, ", "));
}

}  // namespace sprat::fsdp
