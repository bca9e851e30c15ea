// Who is left of a communicator that has failed, and how they agree on the one that follows it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/engine/membership.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// The ranks that are left, in the order of their new ranks.
struct Remainder {
  std::vector<int> members;  ///< Ranks of the communicator that they were of.
  std::uint64_t id = 0;      ///< Of the one to come: no communicator of theirs has had it.
  std::vector<std::size_t> control_blocks;
};

/// How this rank takes part.
struct Leaving {
  std::size_t control_block = 0;  ///< Its new one.
  std::uint64_t attempt = 0;      ///< How often this communicator was shrunk before.
  std::chrono::milliseconds patience{0};
};

/// Blocks until every member has called it, is dead or has left, or somebody's patience is over.
/// Goes through the coordinator, not through the communicator. Everybody who returns has the same
/// remainder. Throws Error{lost_peer} if the others went on without this rank, and what fails the
/// job.
Remainder agree_on_remainder(comm::Context& context, const Membership& membership,
                             const Leaving& leaving);

}  // namespace sprat::collectives
