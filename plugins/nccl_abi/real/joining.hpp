// How a communicator of NCCL's own library comes beside one of ours.
#pragma once

#include <memory>

#include "plugins/nccl_abi/real/hand_over.hpp"

namespace sprat::nccl::real {

/// Collective. Null on every rank, or on none: all stays ours, which rank 0 says once where a rank
/// has asked for something else. `control` makes the agreement; operations are those of `data`.
/// `has_device`: this rank's operations are on `device`. Throws what ends `control`, and
/// ncclInvalidArgument for variables that cannot be read.
std::unique_ptr<HandOver> join_beside(Communicator& control, Communicator& data, int device,
                                      bool has_device);

}  // namespace sprat::nccl::real
