// Whether ranks are at the same place in training.
#pragma once

#include "checkpoint/manifest.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Collective. Throws Error{mismatch} on every rank, naming two ranks and what differs, unless all
/// give the same step and counters: a checkpoint has one of each, so stages that have done
/// different numbers of updates could not go on from it.
/// Cost: 8 bytes a rank.
void check_counters(Communicator& world, const Manifest& about);

}  // namespace sprat::fsdp
