// What a rank leaves behind when its job fails.
#pragma once

#include <string>

#include "comm/context/context.hpp"

namespace sprat::collectives {

/// The rank's flight record as JSON. Throws Error{internal} if its status page cannot be read.
std::string flight_record_of(comm::Context& context);
/// Writes the rank's flight record into the folder that Config::flight_recorder names, if it names
/// one. What goes wrong is logged. Any thread.
void leave_flight_record(comm::Context& context) noexcept;

}  // namespace sprat::collectives
