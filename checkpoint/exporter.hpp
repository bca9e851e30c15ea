// Writes a sharded model's parameters into one safetensors file, every rank its own rows.
#pragma once

#include <string>

#include "fsdp/model_state.hpp"
#include "io/durable.hpp"
#include "sprat/checkpoint.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

struct ExportTarget {
  std::string path;
  CheckpointForm form{};
  io::StepHook hook = {};  ///< Told what changes the disk.
};

/// Collective. Each rank writes what it holds where it belongs in the file, so that no rank has
/// more than its part and, for a moment, its rows of one tensor. The file is there when it is
/// whole. Errors are the same on every rank.
void export_parameters(Communicator& world, const ModelState& held, const ExportTarget& target);

}  // namespace sprat::fsdp
