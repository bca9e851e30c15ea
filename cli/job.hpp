// Joining the job that a subcommand runs in.
#pragma once

#include <functional>

#include "sprat/communicator.hpp"

namespace sprat::cli {

/// Runs `body` on this process's rank of the job, or on `virtual_ranks` threads if that is not 0.
/// Returns the largest exit code.
int run_in_job(const Config& config, int virtual_ranks,
               const std::function<int(Communicator&)>& body);

}  // namespace sprat::cli
