// How many files and connections this process may have open.
#pragma once

#include <cstddef>

namespace sprat::comm {

/// The process will open `more` descriptors. Raises its soft limit, up to the hard one, if it does
/// not allow that many. False if even the hard limit does not.
bool make_room_for_descriptors(std::size_t more);
/// The hard limit.
std::size_t most_descriptors();

}  // namespace sprat::comm
