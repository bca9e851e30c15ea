// Which elements of a stored tensor become elements of a box. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/plan/contents.hpp"
#include "sprat/parameters.hpp"

namespace sprat::fsdp {

/// Runs of `count` elements, `times` of them, as far apart from each other in a stored box as where
/// they go.
struct BoxRead {
  std::size_t box = 0;  ///< Of the stored tensor.
  std::uint64_t from = 0, to = 0, count = 0;
  std::uint64_t times = 1, from_stride = 0, to_stride = 0;

  friend bool operator==(const BoxRead&, const BoxRead&) = default;
};

/// What makes up elements [first, first + count) of `part`, a box that is stored row by row: `from`
/// counts elements of a stored box, `to` from `first` on. By stored box, and rising within each.
/// Runs that follow each other are one, and a tensor of two dimensions has at most three reads a
/// stored box. Throws Error{unavailable} naming the tensor if an element is not stored.
std::vector<BoxRead> plan_reads(const StoredTensor& tensor, const Box& part, std::size_t first,
                                std::size_t count);

}  // namespace sprat::fsdp
