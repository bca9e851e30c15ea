// Whether a process listens somewhere, without talking to it.
#pragma once

#include <vector>

#include "comm/meeting_place.hpp"

namespace sprat::comm {

/// Some door takes a connection: a live process has a listening socket there, whatever else it
/// does. Waits at most 3 s for a host that does not answer.
bool somebody_listens(const std::vector<Door>& doors);

}  // namespace sprat::comm
