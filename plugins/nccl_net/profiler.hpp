// NCCL's profiler interface in its neutral form: collectives, messages and what the network does
// for them, as a Chrome trace.
//
// SPRAT_NCCL_TRACE names a folder; each process writes nccl-HOST-PID.N.json there when its last
// communicator ends. Without it no event is asked for, since NCCL takes the profiler of the
// network's library without being asked.
#pragma once

#include "plugins/nccl_net/abi/types.hpp"
#include "plugins/nccl_net/trace.hpp"

namespace sprat::nccl_net::profiler {

inline constexpr const char* name = "Sprat";

/// `events`: bits of those that are wanted.
Result init(void** context, int* events);
/// Null in `event`: it is not kept, and NCCL does not speak of it again.
Result start(void* context, void** event, const TracedFacts& facts, void* parent);
Result stop(void* event);
Result finalize(void* context);

}  // namespace sprat::nccl_net::profiler
