// A picture of what devices hold under several plans.
#pragma once

#include <string>

#include "planning/search.hpp"

namespace sprat::cli {

/// SVG: a bar for each of the first plans, a colour for each part, a line where memory ends.
std::string memory_bars(const planning::PlanRequest& request, const planning::SearchResult& result);

}  // namespace sprat::cli
