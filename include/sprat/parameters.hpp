// Boxes of tensors: which part of a parameter a rank holds, and how parts that were cut in one way
// are put together in another.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sprat/export.hpp"

namespace sprat {

/// A part of a tensor: along each dimension `extent` indices from `offset` on. Of no dimensions it
/// is a scalar's one element.
struct Box {
  std::vector<std::int64_t> offset, extent;

  friend bool operator==(const Box&, const Box&) = default;
};

/// All of a tensor of this shape.
SPRAT_API Box whole_box(const std::vector<std::int64_t>& shape);
/// How many elements it holds; 0 if any extent is 0.
SPRAT_API std::int64_t element_count(const Box& box);
/// "[2:4, 0:8]": begins and ends by dimension.
SPRAT_API std::string describe(const Box& box);

/// Whether all elements of `inner` are in `outer`. As many dimensions each, as in all that follows;
/// throws Error{invalid_argument} otherwise.
SPRAT_API bool contains(const Box& outer, const Box& inner);
/// What both hold; nothing if they share no element.
SPRAT_API std::optional<Box> intersection(const Box& a, const Box& b);
/// The part of `box` along one dimension that is number `index` of `pieces`, in order. Piece i
/// begins at floor(extent * i / pieces): where halving, and halving again, cuts 2 and 4 pieces.
SPRAT_API Box piece_of(const Box& box, int dimension, int pieces, int index);

/// Elements that follow each other in memory, counted from the first of what they lie in.
struct BoxRun {
  std::int64_t offset = 0, count = 0;

  friend bool operator==(const BoxRun&, const BoxRun&) = default;
};
/// Visits `part` inside `outer`, which is stored row by row: the fewest runs there are, in rising
/// order. Throws Error{invalid_argument} unless `outer` contains `part`.
SPRAT_API void for_each_run(const Box& outer, const Box& part,
                            const std::function<void(BoxRun)>& visit);

/// Elements that follow each other in both of two boxes, counted from the first of each.
struct BoxCopy {
  std::int64_t from = 0, to = 0, count = 0;

  friend bool operator==(const BoxCopy&, const BoxCopy&) = default;
};
/// Visits what `from` and `to`, each stored row by row, hold both: what is to be copied so that a
/// tensor cut in one way is cut in another.
SPRAT_API void for_each_copy(const Box& from, const Box& to,
                             const std::function<void(BoxCopy)>& visit);

}  // namespace sprat
