// Operations of communicators that have a device: in the order of its streams, by their lanes.
#pragma once

#include <span>

#include "plugins/nccl_abi/group.hpp"

namespace sprat::nccl {

/// Queues them, and has their streams wait for them. Sends and receives of a communicator go
/// together. Throws what is wrong with a call; what goes wrong later is in the communicator's
/// state.
void execute_on_devices(std::span<Queued> operations);

}  // namespace sprat::nccl
