// Whether processes listen somewhere, without talking to it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/bootstrap/bootstrap_place.hpp"

namespace sprat::comm {

/// Every probe takes a descriptor, of which a process has a limited number.
inline constexpr std::size_t most_probed_at_once = 128;

/// For each of several processes, whether one of its addresses takes a connection. A live process
/// has a listening socket there, whatever else it does. All are asked at the same time, in groups
/// of most_probed_at_once, and a group waits at most 3 s for hosts that do not answer.
std::vector<bool> who_listens(std::span<const std::vector<SocketAddress>> processes);
/// The same of one process.
bool somebody_listens(const std::vector<SocketAddress>& addresses);

}  // namespace sprat::comm
