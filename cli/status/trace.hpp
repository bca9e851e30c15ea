// What ranks called last, as a timeline.
#pragma once

#include <string>
#include <vector>

#include "collectives/record/flight_record.hpp"

namespace sprat::cli {

/// A Chrome trace of the operations and messages that records hold; those in flight end when the
/// record was taken. Hosts' clocks are compared by the time of day that each has. Throws
/// Error{invalid_argument} if the records are of several jobs, or there are none.
std::string to_trace(const std::vector<collectives::FlightRecord>& records);

}  // namespace sprat::cli
