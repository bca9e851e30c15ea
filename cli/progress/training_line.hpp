// How far a training run is, as a line that is drawn anew.
#pragma once

#include <vector>

#include "cli/progress/live_line.hpp"
#include "train/report.hpp"

namespace sprat::cli {

std::vector<LineField> training_line(const train::RunStatus& status);

}  // namespace sprat::cli
