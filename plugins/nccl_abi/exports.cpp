// The exported functions: every name of functions.def, twice. pnccl<name> is the function;
// nccl<name> is its weak alias, as in NCCL's own library, so that a profiler may define the one and
// call the other.
#include "plugins/nccl_abi/functions.hpp"

#define SPRAT_NCCL_EXPORT extern "C" __attribute__((visibility("default")))

#define SPRAT_NCCL(result, name, parameters, arguments)                                   \
  SPRAT_NCCL_EXPORT result pnccl##name parameters { return sprat::nccl::name arguments; } \
  SPRAT_NCCL_EXPORT __attribute__((weak, alias("pnccl" #name))) result nccl##name parameters;
#include "plugins/nccl_abi/functions.def"

// NCCL's library exports this one name that its header does not declare.
SPRAT_NCCL_EXPORT void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) { pncclResetDebugInit(); }
