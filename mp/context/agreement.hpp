// What the ranks of a cut sequence hold against each other before they begin.
#pragma once

#include <string_view>

#include "mp/context/plan.hpp"
#include "sprat/communicator.hpp"
#include "sprat/layers.hpp"

namespace sprat::mp::context {

/// Collective: the way that all ranks ask for. Throws Error{mismatch} on every rank, naming the
/// first thing that differs and both values, and Error{invalid_argument} if all ask for what is no
/// way.
Way agree_on_attention(Communicator& ranks, const layers::AttentionShape& shape,
                       std::string_view cp_comm_type);

}  // namespace sprat::mp::context
