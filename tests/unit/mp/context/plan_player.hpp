// Plays the plans of all ranks together, where every send waits for its receive.
#pragma once

#include <string>
#include <vector>

#include "mp/context/plan.hpp"

namespace sprat::mp::context {

enum class Pass { forward, backward };

/// What is wrong with them, a sentence each; empty: every pair of chunks is computed once, with the
/// right keys, in the right order, and every gradient reaches its owner once.
std::vector<std::string> faults(const std::vector<Plan>& plans, Pass pass);

}  // namespace sprat::mp::context
