// How a configuration's model is to be sharded.
#pragma once

#include "sprat/fsdp.hpp"
#include "train/config/config.hpp"

namespace sprat::train {

/// What the sharded model is told of a configuration.
FsdpOptions sharding(const TrainConfig& config);

/// Whether losses are the same to the bit under any strategy and degree: level D2 of docs/fsdp.md.
bool same_bits_on_any_row(const TrainConfig& config, int ranks);

}  // namespace sprat::train
