// What the exported functions do, one function of C++ for each, with its name: the door's rooms are
// lifecycle, collectives, groups, memory, queries and refused.
#pragma once

#include "plugins/nccl_abi/abi.h"

namespace sprat::nccl {

#define SPRAT_NCCL(result, name, parameters, arguments) result name parameters;
#include "plugins/nccl_abi/functions.def"

}  // namespace sprat::nccl
