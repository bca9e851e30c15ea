// How a configuration's model is to be sharded.
#pragma once

#include "sprat/fsdp.hpp"
#include "train/config.hpp"

namespace sprat::train {

/// What the sharded model is told of a configuration.
FsdpOptions sharding(const TrainConfig& config);

}  // namespace sprat::train
