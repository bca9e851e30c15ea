// Runs a scenario on virtual ranks and holds what they saw against what may be seen.
#pragma once

#include <cstdint>
#include <string>

#include "tests/system/simulation/scenario.hpp"

namespace sprat::simulation {

struct Verdict {
  std::string complaint;     ///< Empty if all is well.
  std::uint64_t digest = 0;  ///< Of the whole run.
  std::uint64_t turns = 0;
  double virtual_seconds = 0;
  bool fault_struck = false;
};

/// Leaves killed ranks' memory behind: best in a process of its own.
Verdict run_scenario(const Scenario& scenario, bool trace);

}  // namespace sprat::simulation
