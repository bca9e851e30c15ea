// Joining the job that a subcommand runs in.
#pragma once

#include <functional>
#include <string>

#include "sprat/communicator.hpp"

namespace sprat::cli {

/// With the file that an option names for the job's timeline, if it names one.
Config with_trace(Config config, const std::string& path);

/// Runs `body` on this process's rank of the job, or on `virtual_ranks` threads if that is not 0.
/// Returns the largest exit code. Where ranks keep a timeline, rank 0 writes it behind `body`.
int run_in_job(const Config& config, int virtual_ranks,
               const std::function<int(Communicator&)>& body);

}  // namespace sprat::cli
