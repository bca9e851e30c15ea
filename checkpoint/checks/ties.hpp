// Whether parameters that are tied hold the values of those that they are tied to.
#pragma once

#include "fsdp/model_state.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Collective. Throws Error{mismatch} on every rank, naming two units, if a tied parameter or its
/// optimizer state differs from the one that it is tied to: that one is saved, so a job that goes
/// on from the checkpoint would have other bits than this one.
/// Cost: each rank reads what it holds of these parameters; one sum of 16 bytes a tie.
void check_ties(Communicator& world, const ModelState& held);

}  // namespace sprat::fsdp
