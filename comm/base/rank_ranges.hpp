// Ranks as bytes that travel: neighbours together, so that a job's many ranks are few bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/blob.hpp"

namespace sprat::comm {

/// Ascending ranks, as (first, last) of each range, u32 little endian.
Blob encode_ranks(std::span<const int> ranks);
/// Null unless they are ascending ranges, not touching each other, of ranks below `size`.
std::optional<std::vector<int>> decode_ranks(std::span<const std::byte> bytes, int size);

}  // namespace sprat::comm
