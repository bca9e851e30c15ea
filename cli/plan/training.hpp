// `sprat plan`: which degrees train a model on these machines, whether it fits, and how fast.
#pragma once

#include "cli/command.hpp"

namespace sprat::cli {

/// Adds the options of `sprat plan` itself.
Action prepare_plan_training(CLI::App& app);

}  // namespace sprat::cli
