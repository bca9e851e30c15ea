// What the ranks of a cut sequence hold against each other before they begin.
#pragma once

#include "mp/context/plan.hpp"
#include "sprat/communicator.hpp"
#include "sprat/layers.hpp"

namespace sprat::mp::context {

/// Collective. Throws Error{mismatch} on every rank, naming the first thing that differs and both
/// values.
void agree_on_attention(Communicator& ranks, const layers::AttentionShape& shape, Way way);

}  // namespace sprat::mp::context
