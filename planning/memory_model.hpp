// What a device holds at most, by part.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "planning/rehearsal.hpp"

namespace sprat::planning {

/// Bytes.
struct DeviceMemory {
  double parameters = 0, gradients = 0, optimizer = 0;  ///< Between uses, as fsdp's row keeps them.
  double gathered = 0;          ///< Full parameters in use or gathered ahead.
  double gradient_buffers = 0;  ///< Full gradients, narrowed ones, sums not yet added.
  double activations = 0;       ///< Tapes that stay on the device, at the schedule's peak.
  double working = 0;           ///< A block that is computed anew, and gradients on their way.
  double messages = 0;          ///< Slots between stages.
  double offloaded = 0;         ///< In the host's memory, not counted in total().

  double total() const {
    return parameters + gradients + optimizer + gathered + gradient_buffers + activations +
           working + messages;
  }
};
struct MemoryPart {
  const char* name;
  double DeviceMemory::*bytes;
};
/// In the order of total().
const std::vector<MemoryPart>& memory_parts();

/// Of the rank of a pipeline that holds most, by the planners that the run itself has. With
/// `enough` the first rank that holds more ends the search: the arrangement does not fit, whoever
/// holds most.
DeviceMemory memory_of(Rehearsals& rehearsals, const Arrangement& arrangement,
                       double enough = std::numeric_limits<double>::infinity());
DeviceMemory memory_of_rank(Rehearsals& rehearsals, const Arrangement& arrangement, int rank);
/// Less than or as much as memory_of(), and quick: states and the tapes of one micro-batch.
double least_memory(Rehearsals& rehearsals, const Arrangement& arrangement);
/// Whether a device and its host have room.
bool fits(const PlanRequest& request, const DeviceMemory& memory);

}  // namespace sprat::planning
