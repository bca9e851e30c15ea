// What can be said of a plan's steps without running them.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// The rules that steps of `plans` break, each once per step, named by rank and step.
std::vector<std::string> malformed_steps(const std::vector<Problem>& problems,
                                         const std::vector<Plan>& plans);

}  // namespace sprat::collectives
