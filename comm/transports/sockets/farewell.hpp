// How connections end whose last bytes are still on their way.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/transports/sockets/channel.hpp"

namespace sprat::comm::sockets {

/// A socket that is closed while bytes for it come, even if only a credit, is reset, and forgets
/// what it has not delivered yet. So before its channels close, the caller waits here until all
/// that they sent is with the peer's host, where it may be read whatever becomes of this end; at
/// most a second, and not for a peer that has closed. What still comes is read into `buffer` and
/// dropped.
void see_off(const std::vector<std::unique_ptr<Channel>>& channels,
             std::span<std::byte> buffer) noexcept;

}  // namespace sprat::comm::sockets
