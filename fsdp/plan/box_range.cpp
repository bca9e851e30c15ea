// A range begins and ends inside rows of rows: it is cut where those end.
#include "fsdp/plan/box_range.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

/// By dimension, how many elements one index of it holds.
std::vector<std::int64_t> strides_of(const Box& box) {
  std::vector<std::int64_t> strides(box.extent.size(), 1);
  for (std::size_t d = box.extent.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * box.extent[d];
  }
  return strides;
}

}  // namespace

std::vector<Box> boxes_of_range(const Box& box, std::size_t first, std::size_t count) {
  const std::int64_t elements = element_count(box);
  const auto begin = static_cast<std::int64_t>(first);
  const auto end = begin + static_cast<std::int64_t>(count);
  require(begin >= 0 && begin <= end && end <= elements, "elements ", first, " to ", first + count,
          " of the box ", describe(box), ", which has ", elements);
  std::vector<Box> boxes;
  if (count == 0) {
    return boxes;
  }
  if (box.extent.empty()) {
    return {box};
  }
  const std::vector<std::int64_t> strides = strides_of(box);
  for (std::int64_t at = begin; at < end;) {
    // The outermost dimension of which whole indices begin here. The last one always does, since
    // an index of it is one element.
    std::size_t d = 0;
    while (at % strides[d] != 0 || end - at < strides[d]) {
      ++d;
    }
    Box& part = boxes.emplace_back(box);
    std::int64_t rest = at;
    for (std::size_t outer = 0; outer <= d; ++outer) {
      const std::int64_t index = rest / strides[outer];
      rest %= strides[outer];
      part.offset[outer] += index;
      part.extent[outer] = outer < d ? 1 : std::min((end - at) / strides[d], box.extent[d] - index);
    }
    at += part.extent[d] * strides[d];
  }
  return boxes;
}

void for_each_run_of_range(const std::vector<std::int64_t>& shape, const Box& box,
                           std::size_t first, std::size_t count,
                           const std::function<void(BoxRun)>& visit) {
  const Box whole = whole_box(shape);
  if (box == whole) {
    if (count > 0) {
      visit(
          {.offset = static_cast<std::int64_t>(first), .count = static_cast<std::int64_t>(count)});
    }
    return;
  }
  for (const Box& part : boxes_of_range(box, first, count)) {
    for_each_run(whole, part, visit);
  }
}

}  // namespace sprat::fsdp
