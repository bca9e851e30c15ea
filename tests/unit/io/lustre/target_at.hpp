// Where single bytes of a file lie: what tests ask of its layout.
#pragma once

#include <algorithm>
#include <cstdint>

#include "io/lustre/layout.hpp"

namespace sprat::io {

/// The target of the byte at `offset`; unknown_target where no range holds it.
inline Target target_at(const FileLayout& layout, std::uint64_t offset) {
  const auto range = std::ranges::upper_bound(layout, offset, {}, &StripedRange::end);
  if (range == layout.end() || offset < range->begin) {
    return unknown_target;
  }
  // Lustre numbers stripes from the file's first byte, wherever the component begins.
  const std::uint64_t stripe = range->stripe_bytes == 0 ? 0 : offset / range->stripe_bytes;
  return range->targets[stripe % range->targets.size()];
}

}  // namespace sprat::io
