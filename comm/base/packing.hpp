// Bytes that say nearly the same again and again, in fewer bytes: what all ranks of a job tell each
// other of themselves.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "comm/base/blob.hpp"

namespace sprat::comm {

/// Cost: one pass; at most some bytes more than `bytes` has.
Blob pack(std::span<const std::byte> bytes);
/// What was packed. Null if the bytes are no packing, or of more than `most` bytes.
std::optional<Blob> unpack(std::span<const std::byte> packed, std::size_t most);

}  // namespace sprat::comm
