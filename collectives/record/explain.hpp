// Who waits for whom: what the flight records of several ranks say together.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/record/flight_record.hpp"

namespace sprat::collectives {

/// One sentence a finding, worst first: calls that disagree, circles of waiting, who is late for
/// what, messages without their other side, ranks without a record. Empty if nothing waits.
/// Records of several ranks, in any order; a rank's latest counts. If they are of several jobs,
/// each sentence begins with its job.
std::vector<std::string> explain(std::span<const FlightRecord> records);

}  // namespace sprat::collectives
