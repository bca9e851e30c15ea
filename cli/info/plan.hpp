// `sprat info --plan`: what a rank does in a collective, step by step.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/plan/planner.hpp"

namespace sprat::cli {

/// As the command line asks for it.
struct PlanRequest {
  std::string collective, algorithm;
  int ranks = 0;
  int ranks_per_host = 0;    ///< Consecutive ranks; 0: all on one host.
  std::size_t count = 1024;  ///< Elements, f32, as Problem counts them.
  int rank = 0;
};

/// The problem that is asked for. Throws UsageError that lists what there is.
collectives::Problem problem_of(const PlanRequest& request);

/// A heading with the plan's cost, then a line a step.
std::string plan_text(const PlanRequest& request);
nlohmann::ordered_json plan_json(const PlanRequest& request);

}  // namespace sprat::cli
