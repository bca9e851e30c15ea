// `sprat bench --tune`: measures every algorithm that fits and writes rules that prefer the best.
#pragma once

#include <string>

#include "cli/bench/sweep.hpp"
#include "sprat/communicator.hpp"

namespace sprat::cli {

/// Collective: each rank passes the same. Prints a line for each size, and writes `path` at the
/// end, on rank 0. Throws Error{unavailable} at once if it cannot be written.
void tune(Communicator& world, const Sweep& sweep, const Config& config, const std::string& path);

}  // namespace sprat::cli
