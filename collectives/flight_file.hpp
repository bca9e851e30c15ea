// What a rank leaves behind when its job fails.
#pragma once

#include "comm/context.hpp"

namespace sprat::collectives {

/// Writes the rank's flight record into the folder that Config::flight_recorder names, if it names
/// one. What goes wrong is logged. Any thread.
void leave_flight_record(comm::Context& context) noexcept;

}  // namespace sprat::collectives
