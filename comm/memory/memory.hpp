// sprat::Memory, which users allocate for ranks of their host to read: which of it holds an
// address.
#pragma once

#include <cstddef>
#include <optional>

#include "comm/memory/segment.hpp"

namespace sprat::comm {

/// The sprat::Memory that holds all of [data, data + bytes), if one does. Any thread.
std::optional<MemoryRef> find_memory(const void* data, std::size_t bytes) noexcept;

}  // namespace sprat::comm
