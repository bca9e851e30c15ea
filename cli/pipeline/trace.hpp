// A simulated schedule as a trace that chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <string>

#include "mp/simulate.hpp"

namespace sprat::cli {

/// JSON in Chrome's trace-event format: a process for each rank, threads for what it computes and
/// for what goes on beside, times in microseconds.
std::string to_trace(const mp::Schedule& schedule, const mp::SimulatedSchedule& made);

}  // namespace sprat::cli
