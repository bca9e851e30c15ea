// Many seeds, each in a process of its own.
#pragma once

#include <cstdint>
#include <string>

namespace sprat::simulation {

/// Runs seeds first .. last and prints one line for each that fails, with the command that replays
/// it. Stops at the first failure if asked to. Returns how many failed.
int run_seeds(std::uint64_t first, std::uint64_t last, bool stop_at_failure,
              const std::string& program);

}  // namespace sprat::simulation
