// Copying from a peer's memory, which lies in another core's cache.
#pragma once

#include <cstddef>

namespace sprat::collectives {

/// memcpy, faster where `from` is in another core's cache: several streams keep more lines on their
/// way than the one that a plain copy follows.
void pull(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace sprat::collectives
