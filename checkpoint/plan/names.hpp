// Which names a model's parameters may have in a checkpoint, and which of them may share one.
#pragma once

#include "fsdp/model_state.hpp"

namespace sprat::fsdp {

/// Pure. Throws Error{invalid_argument} naming a parameter whose name files cannot hold; those of
/// one name that are not tied and have different shapes, share elements or leave one out; and what
/// is tied to nothing, to one of another shape or to no part that is the same box.
void check_names(const ModelState& model);

}  // namespace sprat::fsdp
