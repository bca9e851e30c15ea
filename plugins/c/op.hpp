// What the C API's op numbers stand for.
#pragma once

#include "sprat/reduction.hpp"
#include "sprat/sprat.h"

namespace sprat::c {

/// Throws Error{invalid_argument} if the number is neither built in nor created and not yet freed.
Reduction reduction_of(sprat_op op);

}  // namespace sprat::c
