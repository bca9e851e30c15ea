// Ranks as bytes that travel: neighbours together, so that a job's many ranks are few bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/blob.hpp"

namespace sprat::comm {

/// Ascending ranks. The axes of a mesh, and a job without some of its ranks, take some ten bytes,
/// however many ranks they have; no ranks take none.
Blob encode_ranks(std::span<const int> ranks);
/// Null unless they are what encode_ranks() makes of ranks below `size`.
std::optional<std::vector<int>> decode_ranks(std::span<const std::byte> bytes, int size);

}  // namespace sprat::comm
