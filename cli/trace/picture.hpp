// A picture of a trace: what each rank did when.
#pragma once

#include <optional>
#include <string>

#include "planning/trace_file.hpp"

namespace sprat::cli {

/// An SVG of a row for each rank, of the first 64 where there are more. In a row stand what the
/// rank computes, with waits and stalls over it, below that what it sends, gathers and sums, and
/// then what it loads and stores. `step`: that training step alone, by its number in the trace;
/// else all. Throws Error{invalid_argument} if the trace has nothing to draw, or no such step.
std::string trace_svg(const planning::TraceFile& trace, const std::string& title,
                      std::optional<int> step);

}  // namespace sprat::cli
