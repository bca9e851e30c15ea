// What a sharded model refuses before it begins. Each throws Error{invalid_argument}.
#pragma once

#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// The options, if each is in its range and fits the others.
FsdpOptions checked(FsdpOptions options);
/// The units with an id each, if no two of them share a name or an id, nor two parameters of one a
/// name, and if tied ones have the parameters of a unit that has them.
std::vector<UnitSpec> checked(std::vector<UnitSpec> units);

}  // namespace sprat::fsdp
