// Carries operations out, those of a group together.
#pragma once

#include <span>

#include "plugins/nccl_abi/group.hpp"

namespace sprat::nccl {

/// Those of communicators with a device are queued behind what their streams hold, and the streams
/// wait for them: nothing blocks. Those of others are done when this returns: all of them start
/// before any is waited for. A communicator that refuses one fails alone: the others' are carried
/// out all the same. Throws the first Error.
ncclResult_t execute(std::span<Queued> operations);

}  // namespace sprat::nccl
