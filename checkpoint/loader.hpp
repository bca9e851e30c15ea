// Reads a checkpoint into the parts that a rank holds, whatever the parts were when it was saved.
#pragma once

#include <string>

#include "checkpoint/manifest.hpp"
#include "checkpoint/plan/load_plan.hpp"
#include "fsdp/model_state.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Collective. Fills the values that `held` views from the checkpoint at `path` (or the latest one
/// in that folder, as rank 0 finds it), and returns its manifest. Every byte is held against its
/// checksum. Memory: one block beside the values. Throws the same Error on every rank: another
/// model before any value changes; a damaged file may leave some changed.
Manifest load(Communicator& world, const ModelState& held, const std::string& path, LoadWhat what);

}  // namespace sprat::fsdp
