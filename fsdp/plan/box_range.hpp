// What lies one after another in a box, as boxes and as runs of the whole tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sprat/parameters.hpp"

namespace sprat::fsdp {

/// The elements [first, first + count) of a box that is stored row by row, as boxes in rising
/// order: at most 2 d - 1 of them where it has d dimensions.
std::vector<Box> boxes_of_range(const Box& box, std::size_t first, std::size_t count);

/// Visits the same elements of a box of a tensor of this shape: where they lie in all of the
/// tensor, in rising order.
void for_each_run_of_range(const std::vector<std::int64_t>& shape, const Box& box,
                           std::size_t first, std::size_t count,
                           const std::function<void(BoxRun)>& visit);

}  // namespace sprat::fsdp
