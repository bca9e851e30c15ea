// What the ranks of a pipeline hold against each other before they run it.
#pragma once

#include <cstddef>
#include <vector>

#include "mp/schedule.hpp"
#include "sprat/communicator.hpp"

namespace sprat::mp {

/// Collective. Throws Error{mismatch} on every rank, naming the first thing that differs and both
/// values.
void agree_on_schedule(Communicator& ranks, const Schedule& schedule, int messages_ahead);

/// Collective, for the same schedule on every rank: the most elements that each stage gives, of
/// those that this rank computes or is handed. Throws Error{mismatch} as above.
std::vector<std::size_t> agree_on_elements(Communicator& ranks, const Schedule& schedule,
                                           const PipelineStages& stages);

}  // namespace sprat::mp
