// Whether boxes make up a tensor: each of its elements in one of them, and in no other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sprat/parameters.hpp"

namespace sprat::fsdp {

/// An element that is in no box, or in more than one.
struct CoverFault {
  std::vector<std::int64_t> element;
  bool is_twice = false;

  friend bool operator==(const CoverFault&, const CoverFault&) = default;
};

/// As many of a tensor's dimensions may be cut at once.
inline constexpr int most_cut_dimensions = 8;
/// Along how many dimensions any of the boxes is less than all of a tensor of this shape.
int cut_dimensions(const std::vector<std::int64_t>& shape, std::span<const Box> boxes);

/// The first fault in row-major order; nothing if the boxes make up a tensor of this shape, in
/// which each of them lies. At most most_cut_dimensions are cut. Cost: n log n for n boxes, times
/// 2^d where d dimensions are cut.
std::optional<CoverFault> cover_fault(const std::vector<std::int64_t>& shape,
                                      std::span<const Box> boxes);

/// "[3, 0]".
std::string describe_element(const std::vector<std::int64_t>& element);

}  // namespace sprat::fsdp
