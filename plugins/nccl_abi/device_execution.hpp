// Operations of communicators that have a device: in the order of its streams, by their lanes.
#pragma once

#include <span>

#include "plugins/nccl_abi/group.hpp"
#include "plugins/nccl_abi/refusals.hpp"

namespace sprat::nccl {

/// Queues them, and has their streams wait for them. Collectives of a communicator keep their
/// order; its sends and receives go together, and start with the first of these. What is on several
/// streams of a communicator is as if it were on each. Communicators do not wait for each other.
/// Notes what is wrong with a call; what goes wrong later is in the communicator's state.
void execute_on_devices(std::span<Queued> operations, Refusals& refused);

/// Has all streams that a communicator's calls are on wait for what any of them holds.
void join_streams(std::span<const Queued> operations, Refusals& refused);

}  // namespace sprat::nccl
