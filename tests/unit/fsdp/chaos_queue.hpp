// A queue that carries collectives out late, by chance, so that whoever does not wait is found out.
#pragma once

#include <cstdint>

#include "fsdp/axis_communicator.hpp"

namespace sprat::fsdp {

/// Each queue is a thread that sleeps a while before each operation, for times that follow from
/// the seed. Slots that are given back are filled with NaNs.
QueueKind chaos_queue(std::uint64_t seed);

}  // namespace sprat::fsdp
