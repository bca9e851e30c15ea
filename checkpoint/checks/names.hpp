// Which names a model's parameters may have in a checkpoint, and what may share one.
#pragma once

#include "fsdp/model_state.hpp"

namespace sprat::fsdp {

/// Pure. Throws Error{invalid_argument} naming a parameter whose name files cannot hold, or that
/// another one has while neither is tied, or that is tied to nothing or to one of another shape.
void check_names(const ModelState& model);

}  // namespace sprat::fsdp
