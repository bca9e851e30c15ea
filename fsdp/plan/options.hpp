// What a sharded model refuses before it begins. Each throws Error{invalid_argument}.
#pragma once

#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// The options, if each is in its range and fits the others.
FsdpOptions checked(FsdpOptions options);
/// The units, if no two of them share a name, nor two parameters of one.
const std::vector<UnitSpec>& with_names_of_their_own(const std::vector<UnitSpec>& units);

}  // namespace sprat::fsdp
