// Boxes of tensors stored row by row.
#include "sprat/parameters.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

void check_box(const Box& box) {
  require(box.offset.size() == box.extent.size(), "a box has ", box.offset.size(), " offsets and ",
          box.extent.size(), " extents; it has one of each for each dimension");
  for (std::size_t d = 0; d < box.extent.size(); ++d) {
    require(box.offset[d] >= 0 && box.extent[d] >= 0, "a box has offset ", box.offset[d],
            " and extent ", box.extent[d], " along dimension ", d, "; both are 0 or more");
  }
}

void check_alike(const Box& a, const Box& b) {
  check_box(a);
  check_box(b);
  require(a.extent.size() == b.extent.size(), "the boxes ", describe(a), " and ", describe(b),
          " have ", a.extent.size(), " and ", b.extent.size(), " dimensions; they need as many");
}

/// By dimension, how many elements of the box lie between neighbours along it.
std::vector<std::int64_t> strides_of(const Box& box) {
  std::vector<std::int64_t> strides(box.extent.size(), 1);
  for (std::size_t d = box.extent.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * box.extent[d];
  }
  return strides;
}

/// Where the first element of `part` lies in `outer`.
std::int64_t position(const Box& outer, const std::vector<std::int64_t>& strides, const Box& part) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    at += (part.offset[d] - outer.offset[d]) * strides[d];
  }
  return at;
}

}  // namespace

Box whole_box(const std::vector<std::int64_t>& shape) {
  Box box{.offset = std::vector<std::int64_t>(shape.size(), 0), .extent = shape};
  check_box(box);
  return box;
}

std::int64_t element_count(const Box& box) {
  check_box(box);
  std::int64_t count = 1;
  for (const std::int64_t extent : box.extent) {
    count *= extent;
  }
  return count;
}

std::string describe(const Box& box) {
  std::string out = "[";
  for (std::size_t d = 0; d < box.extent.size(); ++d) {
    out += text(d == 0 ? "" : ", ", box.offset[d], ":", box.offset[d] + box.extent[d]);
  }
  return out + "]";
}

bool contains(const Box& outer, const Box& inner) {
  check_alike(outer, inner);
  if (std::ranges::find(inner.extent, 0) != inner.extent.end()) {
    return true;
  }
  for (std::size_t d = 0; d < outer.extent.size(); ++d) {
    if (inner.offset[d] < outer.offset[d] ||
        inner.offset[d] + inner.extent[d] > outer.offset[d] + outer.extent[d]) {
      return false;
    }
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  check_alike(a, b);
  Box both = a;
  for (std::size_t d = 0; d < a.extent.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (begin >= end) {
      return std::nullopt;
    }
    both.offset[d] = begin;
    both.extent[d] = end - begin;
  }
  return both;
}

Box piece_of(const Box& box, int dimension, int pieces, int index) {
  check_box(box);
  const auto d = static_cast<std::size_t>(dimension);
  require(dimension >= 0 && d < box.extent.size(), "the box ", describe(box), " has no dimension ",
          dimension);
  require(index >= 0 && index < pieces, "piece ", index, " of ", pieces,
          " does not exist; pieces are counted from 0");
  // extent * at / pieces would be too large a number before the division.
  const std::int64_t least = box.extent[d] / pieces, rest = box.extent[d] % pieces;
  const auto begin = [&](std::int64_t at) { return least * at + rest * at / pieces; };
  Box piece = box;
  piece.offset[d] += begin(index);
  piece.extent[d] = begin(index + 1) - begin(index);
  return piece;
}

void for_each_run(const Box& outer, const Box& part, const std::function<void(BoxRun)>& visit) {
  require(contains(outer, part), "the box ", describe(outer), " does not contain ", describe(part));
  // What a box shares with one that it lies in follows in itself without a gap, so its runs are
  // those of the copies to itself.
  for_each_copy(outer, part, [&](BoxCopy copy) { visit({copy.from, copy.count}); });
}

void for_each_copy(const Box& from, const Box& to, const std::function<void(BoxCopy)>& visit) {
  const auto both = intersection(from, to);
  if (!both) {
    return;
  }
  // Dimensions that are whole in both boxes run on from one index of the dimension before them to
  // the next, so a run takes all of those and one more.
  std::size_t outer_dimensions = both->extent.size();
  std::int64_t run = 1;
  bool whole = true;
  while (whole && outer_dimensions > 0) {
    --outer_dimensions;
    const std::int64_t extent = both->extent[outer_dimensions];
    run *= extent;
    whole = extent == from.extent[outer_dimensions] && extent == to.extent[outer_dimensions];
  }
  const auto from_strides = strides_of(from), to_strides = strides_of(to);
  BoxCopy copy{position(from, from_strides, *both), position(to, to_strides, *both), run};
  std::vector<std::int64_t> index(outer_dimensions, 0);
  for (;;) {
    visit(copy);
    std::size_t d = outer_dimensions;
    // Counts like an odometer: a dimension that is through starts again and moves the one before.
    while (d > 0) {
      --d;
      copy.from += from_strides[d];
      copy.to += to_strides[d];
      if (++index[d] < both->extent[d]) {
        break;
      }
      copy.from -= index[d] * from_strides[d];
      copy.to -= index[d] * to_strides[d];
      index[d] = 0;
      if (d == 0) {
        return;
      }
    }
    if (outer_dimensions == 0) {
      return;
    }
  }
}

}  // namespace sprat
