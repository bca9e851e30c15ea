// Whether ranks that hold copies of the same values hold the same values.
#pragma once

#include "fsdp/model_state.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Collective. Throws Error{mismatch} on every rank, naming a unit and two ranks, if copies of a
/// part differ in a bit: replicas compute the same updates, and nothing else would notice if they
/// did not.
/// Cost: each rank reads what it holds of units that have copies; 8 bytes a rank, twice if the
/// model also has persistent parameters.
void check_replicas(Communicator& world, const ModelState& held);

}  // namespace sprat::fsdp
